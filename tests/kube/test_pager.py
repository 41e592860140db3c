"""Lists of a kind in the newest version that has objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from webhook.kube.api import POD_GROUPS, ForbiddenError, Kind, NotFoundError, Object
from webhook.kube.pager import of_newest_version

NEWEST, OLDER, OLDEST = POD_GROUPS
GROUP: Object = {"metadata": {"name": "train"}}


@pytest.mark.parametrize("has_objects", [NEWEST, OLDER, OLDEST])
def test_versions_that_are_empty_or_not_served_are_passed_over(has_objects: Kind) -> None:
    asked = []

    def read(kind: Kind) -> Iterator[Object]:
        asked.append(kind)
        if kind == has_objects:
            yield GROUP
        elif kind == NEWEST:
            raise NotFoundError("the server could not find the requested resource")

    assert list(of_newest_version(POD_GROUPS, read)) == [GROUP]
    assert asked == list(POD_GROUPS[: POD_GROUPS.index(has_objects) + 1])


def test_a_part_of_the_objects_of_a_version_is_not_all() -> None:
    """An upgrade of several API servers serves a page of a version that the next has not."""

    def read(kind: Kind) -> Iterator[Object]:
        if kind == NEWEST:
            yield GROUP
        raise NotFoundError("the server could not find the requested resource")

    with pytest.raises(NotFoundError):
        list(of_newest_version(POD_GROUPS, read))


def test_other_errors_are_raised() -> None:
    def read(_kind: Kind) -> Iterator[Object]:
        raise ForbiddenError("no right")

    with pytest.raises(ForbiddenError):
        list(of_newest_version(POD_GROUPS, read))
