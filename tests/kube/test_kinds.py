"""Finding kinds by what objects and paths say."""

from __future__ import annotations

import pytest

from webhook.kube.api import (
    JOBS,
    KNOWN_KINDS,
    PODS,
    QUOTA_LEDGERS,
    Kind,
    kind_of,
    known_kind,
    object_key,
    split_key,
)
from webhook.kube.kinds import guess_plural


@pytest.mark.parametrize("kind", KNOWN_KINDS, ids=lambda kind: kind.resource)
def test_a_known_kind_is_found_by_its_objects(kind: Kind) -> None:
    assert known_kind(kind.api_version, kind.kind) == kind


def test_no_two_kinds_share_a_path() -> None:
    assert len({(kind.group, kind.plural) for kind in KNOWN_KINDS}) == len(KNOWN_KINDS)


NAMES = {
    "core": (PODS, "v1", "pods", "Pod"),
    "a group": (JOBS, "batch/v1", "jobs.batch", "Job.batch"),
    "a custom resource": (
        QUOTA_LEDGERS,
        "deferredquota.io/v1alpha1",
        "quotaledgers.deferredquota.io",
        "QuotaLedger.deferredquota.io",
    ),
}


@pytest.mark.parametrize(
    ("kind", "api_version", "resource", "qualified"), NAMES.values(), ids=NAMES.keys()
)
def test_a_kind_is_called_as_the_api_calls_it(
    kind: Kind, api_version: str, resource: str, qualified: str
) -> None:
    assert (kind.api_version, kind.resource) == (api_version, resource)
    assert kind.qualified_kind == qualified


def test_another_version_of_a_known_kind_is_that_kind() -> None:
    found = kind_of("batch/v1beta1", "Job", namespaced=False)
    assert (found.plural, found.version, found.namespaced) == ("jobs", "v1beta1", True)


def test_an_unknown_kind_is_taken_for_a_custom_resource() -> None:
    found = kind_of("example.com/v1", "Policy", namespaced=False)
    assert (found.plural, found.namespaced, found.is_custom) == ("policies", False, True)
    assert known_kind("example.com/v1", "Policy") is None


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Pod", "pods"), ("Box", "boxes"), ("Class", "classes"), ("Match", "matches")],
)
def test_a_plural_is_guessed(kind: str, plural: str) -> None:
    assert guess_plural(kind) == plural


@pytest.mark.parametrize(("namespace", "name"), [("team-a", "web-1"), ("", "team-a")])
def test_a_key_can_be_taken_apart(namespace: str, name: str) -> None:
    assert split_key(object_key(namespace, name)) == (namespace, name)
