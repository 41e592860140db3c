"""Lists of a kind: page by page, all of one moment, and in the newest version there is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from webhook.kube.api import (
    ClusterApi,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    Page,
    UnavailableError,
)


def list_pages(
    api: ClusterApi, kind: Kind, options: ListOptions, *, newest: int, is_brief: bool = False
) -> Iterator[Page]:
    """Yield the pages of a list.

    Args:
        api: Where to list.
        kind: What to list.
        options: Which objects.
        newest: The newest version that was seen before, in an unfinished list perhaps.
        is_brief: No more than the metadata of the objects is needed.

    Raises:
        UnavailableError: The list is older than `newest`, its pages do not belong together, or
            there are none.
        ApiError: The API server does not answer, or cannot continue the list.
    """
    version: int | None = None
    for page in api.pages(kind, options, is_brief=is_brief):
        if version not in (None, page.resource_version):
            raise UnavailableError(
                f"the list of {kind.plural} is at version {page.resource_version} on one page and "
                f"at {version} on those before"
            )
        version = page.resource_version
        if version < newest:
            raise UnavailableError(
                f"the list of {kind.plural} is at version {version}, older than {newest} which "
                "has been seen"
            )
        yield page
    if version is None:
        raise UnavailableError(f"the list of {kind.plural} has no page")


def of_newest_version(
    versions: Iterable[Kind], read: Callable[[Kind], Iterable[Object]]
) -> Iterator[Object]:
    """Yield the objects of the first version that has any.

    Args:
        versions: One kind in its versions, the newest first.
        read: Returns the objects of a version; may raise NotFoundError where it is not served.

    Raises:
        NotFoundError: A version was served for a part of its objects only.
    """
    for kind in versions:
        is_empty = True
        try:
            for raw in read(kind):
                is_empty = False
                yield raw
        except NotFoundError:
            if not is_empty:  # one of several API servers has it: there may be more
                raise
        if not is_empty:
            return


def listed_versions(
    api: ClusterApi, kind: Kind, options: ListOptions, uids: Collection[str], *, newest: int
) -> Mapping[str, int]:
    """Return uid → version of those of some objects that one list shows.

    No more than that is kept of however many objects. What is missing was not selected at the
    moment of the list.

    Args:
        api: Where to list.
        kind: What to list.
        options: Which objects.
        uids: Those that matter.
        newest: The newest version that was seen before.

    Raises:
        ApiError: As in `list_pages`; nothing is known then.
    """
    pages = list_pages(api, kind, options, newest=newest, is_brief=True)
    wanted = frozenset(uids)
    listed = (one for page in pages for one in page.items if one.uid in wanted)
    return {one.uid: one.resource_version for one in listed}
