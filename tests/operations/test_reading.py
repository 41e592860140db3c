from __future__ import annotations

from dataclasses import replace

import pytest

from tests.operations.scenes import a_cluster, a_gated_pod
from tests.reactions import Call, Proceed, ReactiveClient, expire
from webhook.kube.api import PODS
from webhook.operations.reading import name_of, read_all


def one_by_one(call: Call, proceed: Proceed) -> object:
    """Let a list that is read in pages have pages of one object."""
    return proceed(replace(call, options={**call.options, "limit": 1}) if call.is_paged else call)


@pytest.mark.parametrize("times", [0, 1, 100])
def test_a_list_that_expires_is_begun_again_and_read_once(times: int) -> None:
    """If it never comes to its end in parts, it is read as a whole."""
    api = ReactiveClient(a_cluster(*(a_gated_pod(name) for name in "abc")))
    api.on("list", "*", one_by_one)
    api.on("continue", "*", expire, times=times)
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
