"""Read many objects without keeping more of each than is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeVar

from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    ALL,
    PODS,
    RESOURCE_QUOTAS,
    ClusterApi,
    ExpiredError,
    Kind,
    ListOptions,
    Object,
)
from webhook.operations.server_time import server_time
from webhook.quota.ledger.ledger import NO_GUARD
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.state.object_decoders import decode_pod

_T = TypeVar("_T")
_ATTEMPTS: Final = 5


def guard_uid_of(registration: Object | None) -> str | None:
    """Return the uid of the guard's registration as `check_observed` takes it.

    None where it is in a file, and has none.
    """
    if registration is None:
        return NO_GUARD
    return FieldReader(registration).child("metadata").text("uid") or None


def read_all(
    api: ClusterApi,
    kind: Kind,
    read: Callable[[Object], _T],
    options: ListOptions = ALL,
    *,
    decode: Callable[[bytes], Object] | None = None,
    begin: Callable[[], None] | None = None,
) -> list[_T]:
    """Return what `read` makes of every object of a kind, all of one moment.

    They are read in parts; where they change too fast for that, at once. `decode` may leave out
    what `read` does not look at; `begin` is called before each attempt, as what was read in an
    earlier one is forgotten.

    Raises:
        ApiError: They cannot be listed.
    """
    for _ in range(_ATTEMPTS):
        if begin is not None:
            begin()
        try:
            pages = api.pages(kind, options)
            return [
                read(revision.object if decode is None else decode(revision.data))
                for page in pages
                for revision in page.items
            ]
        except ExpiredError:
            continue  # the moment that was read is no longer kept: from the beginning
    if begin is not None:
        begin()
    found = api.list(kind, options)
    if decode is None:
        return [read(raw) for raw in found.items]
    return [read(decode(encode_json(raw))) for raw in found.items]


@dataclass(frozen=True, slots=True)
class Inhabitants:
    """Contents of a namespace that quotas are about."""

    quotas: tuple[ResourceQuota, ...]
    pods: tuple[Pod, ...]
    unreadable: tuple[str, ...] = ()
    """What cannot be read: object, field and reason."""
    now: datetime | None = None
    """The API server's time, by which pods that are being deleted are charged or not any more; None
    where no pod is, and where it is not known: they are charged."""


class Repeat(Protocol):
    """Calls something, and again if it failed for now."""

    def __call__(self, call: Callable[[], _T], /) -> _T:
        """Return what `call` returns at last."""


def once(call: Callable[[], _T], /) -> _T:
    """Call without repeating."""
    return call()


def inhabitants(api: ClusterApi, namespace: str, repeat: Repeat = once) -> Inhabitants:
    """Read the quotas and the pods of a namespace, the quotas first.

    A quota as returned is then older than the pods: a status that is written on that very version
    was not charged by any pod that is missing in the list and stored before it.

    Raises:
        ApiError: They cannot be listed.
    """
    quotas, odd_quotas = repeat(lambda: read_quotas(api, namespace))
    options = ListOptions(namespace)
    pods, odd_pods = parted(
        repeat(lambda: read_all(api, PODS, read_pod, options, decode=decode_pod)), Pod
    )
    # after the list: what has ended by then is charged no more, whenever it was listed
    now = server_time(api, namespace) if any(pod.is_deleting for pod in pods) else None
    return Inhabitants(tuple(quotas), tuple(pods), (*odd_quotas, *odd_pods), now)


def read_pod(raw: Object) -> Pod | str:
    """Read a pod, or say what of it cannot be read."""
    try:
        return Pod.from_stored(raw)
    except InvalidFieldError as err:
        return f"Pod {name_of(raw)}: {err}"


def read_quota(raw: Object) -> ResourceQuota | str:
    """Read a quota, or say what of it cannot be read."""
    try:
        return ResourceQuota.from_stored(raw)
    except InvalidFieldError as err:
        return f"ResourceQuota {name_of(raw)}: {err}"


def read_quotas(api: ClusterApi, namespace: str) -> tuple[list[ResourceQuota], list[str]]:
    """Return the quotas of a namespace, by name, and words about those that cannot be read.

    Raises:
        ApiError: They cannot be listed.
    """
    read = read_all(api, RESOURCE_QUOTAS, read_quota, ListOptions(namespace))
    quotas, odd = parted(read, ResourceQuota)
    return sorted(quotas, key=lambda quota: quota.name), odd


def parted(found: Iterable[_T | str], _type: type[_T]) -> tuple[list[_T], list[str]]:
    """Part what was read from the words about what could not be."""
    read: list[_T] = []
    odd: list[str] = []
    for each in found:
        if isinstance(each, str):
            odd.append(each)
        else:
            read.append(each)
    return read, odd


def name_of(raw: Object) -> str:
    """Return "namespace/name" of any object, however odd."""
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        return "(without metadata)"
    parts = (metadata.get("namespace"), metadata.get("name"))
    return "/".join(part for part in parts if isinstance(part, str) and part) or "(without name)"
