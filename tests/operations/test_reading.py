from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operations.scenes import a_cluster, a_gated_pod
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import PODS, ExpiredError, Page
from webhook.operations.reading import name_of, read_all


class Expiring(FakeClient):
    """Lists expire after their first page, so many times."""

    times = 0

    def pages(self, *args: Any, **kwargs: Any) -> Iterator[Page]:
        yield from super().pages(*args, **{**kwargs, "limit": 1})
        if self.times:
            self.times -= 1
            raise ExpiredError("too old resource version")


@pytest.mark.parametrize("times", [0, 1, 100])
def test_a_list_that_expires_is_begun_again_and_read_once(times: int) -> None:
    """If it never comes to its end in parts, it is read as a whole."""
    api = Expiring(a_cluster(*(a_gated_pod(name) for name in "abc")))
    api.times = times
    assert read_all(api, PODS, name_of) == ["team-a/a", "team-a/b", "team-a/c"]


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"metadata": {"name": "a", "namespace": "n"}}, "n/a"),
        ({"metadata": {"name": 5}}, "(without name)"),
        ({"metadata": "x"}, "(without metadata)"),
        ({}, "(without metadata)"),
    ],
)
def test_any_object_has_a_name(raw: dict[str, object], name: str) -> None:
    assert name_of(raw) == name
