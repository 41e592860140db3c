"""Spellings of a Job that mean the same pass everywhere; those that do not pass nowhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object
from tests.quota.jobs.job_updates import (
    SPEC,
    STARTED,
    TEMPLATE,
    Change,
    a_stored_job,
    at,
    drop,
    immutable,
    put,
    updated,
)
from webhook.jsonfields.encoding import NumberText
from webhook.quota.amounts.quantity import Format, Quantity
from webhook.quota.jobs import job_update_errors

CLOSED = updated(
    a_stored_job(startTime=STARTED),
    put(
        f"{SPEC}.volumes",
        [
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "plain", "emptyDir": {}},
        ],
    ),
    put(f"{SPEC}.topologySpreadConstraints", [{"maxSkew": 1, "labelSelector": {}}]),
    put(f"{SPEC}.containers.0.ports", [{"containerPort": 80}]),
    put(f"{SPEC}.containers.1.args", ["a", ""]),
    put(f"{SPEC}.containers.1.readinessProbe", {"httpGet": {"port": 80}}),
    put("spec.template.metadata.deletionTimestamp", STARTED),
)
FREE = {"cpu": "much", "limits": "none", "requests": "x", "metadata": "", "sizeLimit": "1Gi"}
"""Entries of a map whose keys people choose, which are called like fields of other objects."""
FREE_MAPS = {
    "options of a flex volume": (f"{SPEC}.volumes.2.flexVolume", "options"),
    "attributes of a csi volume": (f"{SPEC}.volumes.3.csi", "volumeAttributes"),
    "annotations": ("spec.template.metadata", "annotations"),
    "labels": ("spec.template.metadata", "labels"),
    "a node selector": (SPEC, "nodeSelector"),
    "labels of a claim": (
        f"{SPEC}.volumes.4.ephemeral.volumeClaimTemplate.metadata",
        "labels",
    ),
    "annotations of a certificate": (
        f"{SPEC}.volumes.5.projected.sources.0.podCertificate",
        "userAnnotations",
    ),
}
WITH_FREE_MAPS = updated(
    CLOSED,
    put(
        f"{SPEC}.volumes",
        [
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "plain", "emptyDir": {}},
            {"name": "flex", "flexVolume": {"driver": "example.com/d", "options": {}}},
            {"name": "csi", "csi": {"driver": "example.com/d", "volumeAttributes": {}}},
            {"name": "ephemeral", "ephemeral": {"volumeClaimTemplate": {"metadata": {}}}},
            {"name": "projected", "projected": {"sources": [{"podCertificate": {}}]}},
        ],
    ),
    *(put(f"{path}.{name}", {**FREE, "app": "train"}) for path, name in FREE_MAPS.values()),
)

SAME: Mapping[str, Change] = {
    "a request": put(f"{SPEC}.containers.0.resources.requests.cpu", "0.5"),
    "a limit as a number": put(f"{SPEC}.containers.0.resources.limits.cpu", 1),
    "a limit as a number with an exponent": put(
        f"{SPEC}.containers.0.resources.limits.memory", NumberText("1073741.824e3")
    ),
    "a time of another zone": put(
        "spec.template.metadata.deletionTimestamp", "2026-06-01T14:00:00+02:00"
    ),
    "the first of all times": put(
        "spec.template.metadata.creationTimestamp", "0001-01-01T00:00:00Z"
    ),
    "the size of a volume": put(f"{SPEC}.volumes.0.emptyDir.sizeLimit", "1024Mi"),
    "null for an absent field": put(f"{SPEC}.affinity", None),
    "an empty list": put(f"{SPEC}.tolerations", []),
    "an empty map of labels": put("spec.template.metadata.annotations", {}),
    "an empty map of amounts": put(f"{SPEC}.containers.1.resources.limits", {}),
    "an empty overhead": put(f"{SPEC}.overhead", {}),
    "a null time": put("spec.template.metadata.creationTimestamp", None),
    "an empty text": put(f"{SPEC}.nodeName", ""),
    "a flag that is off": put(f"{SPEC}.hostNetwork", False),
    "a null probe": put(f"{SPEC}.containers.0.livenessProbe", None),
    "a port of zero": put(f"{SPEC}.containers.0.ports.0.hostPort", 0),
    "null for an empty text in a list": put(f"{SPEC}.containers.1.args", ["a", None]),
    "a null list": put(f"{SPEC}.containers.0.command", None),
}
DIFFERENT: Mapping[str, Change] = {
    "an empty object for an absent one": put(f"{SPEC}.affinity", {}),
    "empty pod-level resources": put(f"{SPEC}.resources", {}),
    "an absent object for an empty one": put(f"{SPEC}.securityContext", None),
    "a volume without its kind": drop(f"{SPEC}.volumes.1.emptyDir"),
    "a selector of everything that is gone": drop(
        f"{SPEC}.topologySpreadConstraints.0.labelSelector"
    ),
    "a size of zero": put(f"{SPEC}.volumes.1.emptyDir.sizeLimit", "0"),
    "another time": put("spec.template.metadata.deletionTimestamp", "2026-06-01T14:00:00Z"),
    "the name of a port for its number": put(
        f"{SPEC}.containers.1.readinessProbe.httpGet.port", "80"
    ),
    "a flag whose absence says something": put(f"{SPEC}.automountServiceAccountToken", False),
    "a number whose absence says something": put(f"{SPEC}.terminationGracePeriodSeconds", 0),
    "an empty text in a list": put(f"{SPEC}.containers.0.args", [""]),
    "a flag for a number": put(f"{SPEC}.topologySpreadConstraints.0.maxSkew", True),
    "a text for a number": put(f"{SPEC}.topologySpreadConstraints.0.maxSkew", "1"),
    "an empty name whose absence says something": put(f"{SPEC}.runtimeClassName", ""),
    "an amount that is a little more": put(
        f"{SPEC}.containers.0.resources.requests.cpu", "500000001n"
    ),
    "an empty annotation": put("spec.template.metadata.annotations", {"a": ""}),
    "a member that no template has": put("spec.template.status", "x"),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
def test_another_spelling_is_no_change(change: Change) -> None:
    assert job_update_errors(CLOSED, updated(CLOSED, change)) == []
    assert job_update_errors(updated(CLOSED, change), CLOSED) == []


@pytest.mark.parametrize("change", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_another_meaning_is_a_change(change: Change) -> None:
    assert job_update_errors(CLOSED, updated(CLOSED, change)) == [immutable(TEMPLATE)]
    assert job_update_errors(updated(CLOSED, change), CLOSED) == [immutable(TEMPLATE)]


@pytest.mark.parametrize(("path", "name"), FREE_MAPS.values(), ids=FREE_MAPS.keys())
def test_keys_that_people_choose_are_no_fields(path: str, name: str) -> None:
    free = updated(WITH_FREE_MAPS)
    for key, value in FREE.items():
        other = "1024Mi" if key == "sizeLimit" else f"{value}x"
        new = updated(free, put(f"{path}.{name}.{key}", other))
        assert job_update_errors(free, new) == [immutable(TEMPLATE)], key
    assert job_update_errors(free, updated(free)) == []


AMOUNTS = {
    "requests": f"{SPEC}.containers.0.resources.requests.cpu",
    "limits of an init container": f"{SPEC}.initContainers.0.resources.limits.cpu",
    "the size of a volume": f"{SPEC}.volumes.0.emptyDir.sizeLimit",
    "a claim": f"{SPEC}.volumes.1.ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
    "overhead": f"{SPEC}.overhead.cpu",
    "the pod": f"{SPEC}.resources.requests.cpu",
    "a divisor": f"{SPEC}.containers.0.env.0.valueFrom.resourceFieldRef.divisor",
    "a divisor in a file": f"{SPEC}.volumes.1.downwardAPI.items.0.resourceFieldRef.divisor",
    "a divisor in a projected file": (
        f"{SPEC}.volumes.1.projected.sources.0.downwardAPI.items.0.resourceFieldRef.divisor"
    ),
}


@pytest.mark.parametrize("path", AMOUNTS.values(), ids=AMOUNTS.keys())
def test_amounts_are_compared_by_value_wherever_they_stand(path: str) -> None:
    lists = updated(
        CLOSED,
        put(f"{SPEC}.volumes.1.downwardAPI", {"items": [{}]}),
        put(f"{SPEC}.volumes.1.projected", {"sources": [{"downwardAPI": {"items": [{}]}}]}),
        put(f"{SPEC}.resources", {"requests": {"cpu": "1"}}),
    )
    # as much as the containers ask for, so that it is not at fault
    one, same, other = (updated(lists, put(path, amount)) for amount in ("1", "1000m", "1001m"))

    assert immutable(TEMPLATE) not in job_update_errors(one, same)
    assert immutable(TEMPLATE) in job_update_errors(one, other)


def test_a_number_is_not_the_text_of_it() -> None:
    path = f"{SPEC}.topologySpreadConstraints.0.maxSkew"
    old, new = updated(CLOSED, put(path, NumberText("1.5"))), updated(CLOSED, put(path, "1.5"))

    assert job_update_errors(old, new) == [immutable(TEMPLATE)]


def test_the_order_of_a_list_matters() -> None:
    old = updated(CLOSED, put(f"{SPEC}.containers.0.args", ["a", "b"]))
    new = updated(CLOSED, put(f"{SPEC}.containers.0.args", ["b", "a"]))

    assert job_update_errors(old, new) == [immutable(TEMPLATE)]


JOBS = st.builds(
    lambda status, suspend: updated(a_stored_job(**status), put("spec.suspend", suspend)),
    st.fixed_dictionaries(
        {},
        optional={
            "startTime": st.just(STARTED),
            "active": st.integers(0, 2),
            "conditions": st.lists(
                st.fixed_dictionaries(
                    {
                        "type": st.sampled_from(["Suspended", "Complete"]),
                        "status": st.sampled_from(["True", "False", "Unknown"]),
                    }
                ),
                max_size=2,
            ),
        },
    ),
    st.sampled_from([True, False, None]),
)
CHANGES = st.lists(
    st.sampled_from(
        [
            put(f"{SPEC}.containers.0.resources.requests.cpu", "700m"),
            put(f"{SPEC}.containers.0.resources.requests.cpu", "7"),
            put(f"{SPEC}.initContainers.0.resources.limits", {"cpu": "3"}),
            put(f"{SPEC}.nodeSelector", {"zone": "b"}),
            put(f"{SPEC}.containers.0.image", "registry.example/app:2"),
            put("spec.template.metadata.labels.app", "other"),
            put("spec.completions", 9),
            put("spec.parallelism", 9),
        ]
    ),
    max_size=3,
)
GATES = st.sets(
    st.sampled_from(
        ["MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs"]
    )
).map(frozenset)


@given(job=JOBS, gates=GATES)
def test_no_change_passes_in_every_state(job: Object, gates: frozenset[str]) -> None:
    assert job_update_errors(job, job, gates) == []


def reversed_keys(value: object) -> object:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


@given(job=JOBS, changes=CHANGES, gates=GATES)
def test_the_order_of_keys_does_not_matter(
    job: Object, changes: list[Change], gates: frozenset[str]
) -> None:
    new = updated(job, *changes)
    turned = reversed_keys(new)
    assert isinstance(turned, dict)

    assert job_update_errors(job, turned, gates) == job_update_errors(job, new, gates)


@given(job=JOBS, changes=CHANGES, gates=GATES, style=st.sampled_from(Format))
def test_the_spelling_of_amounts_does_not_matter(
    job: Object, changes: list[Change], gates: frozenset[str], style: Format
) -> None:
    new = updated(job, *changes)
    respelled = updated(new)
    for name in ("containers.0", "containers.1", "initContainers.0"):
        requests = at(respelled, f"{SPEC}.{name}.resources")["requests"]
        assert isinstance(requests, dict)
        for key, amount in requests.items():
            requests[key] = str(Quantity.of_nano(Quantity.parse(amount).nano, style))

    assert job_update_errors(job, respelled, gates) == job_update_errors(job, new, gates)


@given(job=JOBS, changes=CHANGES, gates=GATES)
def test_a_closed_gate_never_lets_more_resources_pass(
    job: Object, changes: list[Change], gates: frozenset[str]
) -> None:
    new = updated(job, *changes)
    fewer = gates - {"MutablePodResourcesForSuspendedJobs"}

    if not job_update_errors(job, new, fewer):
        assert job_update_errors(job, new, gates) == []


@given(job=JOBS, changes=CHANGES, gates=GATES)
def test_neither_job_is_changed(job: Object, changes: list[Change], gates: frozenset[str]) -> None:
    new = updated(job, *changes)
    before = updated(job), updated(new)
    job_update_errors(job, new, gates)

    assert (job, new) == before
