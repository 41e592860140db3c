"""A Job that cannot be read is refused with the path of the field, whatever it holds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quota.jobs.job_updates import SPEC, Change, a_stored_job, at, drop, put, updated
from tests.quota.pod_strategies import damaged, json_values, places
from webhook.jsonfields.encoding import NumberText
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import InvalidQuantityError
from webhook.quota.jobs import job_update_errors

JOB = a_stored_job()
REQUESTS = f"{SPEC}.containers[0].resources.requests"

UNREADABLE: Mapping[str, tuple[Change, str]] = {
    "no template": (drop("spec.template"), "spec.template"),
    "no spec": (drop("spec"), "spec.template"),
    "spec is a list": (put("spec", []), "spec"),
    "template is a text": (put("spec.template", "x"), "spec.template"),
    "template spec is a list": (put(SPEC, []), SPEC),
    "template metadata is a list": (put("spec.template.metadata", []), "spec.template.metadata"),
    "labels are a list": (
        put("spec.template.metadata.labels", []),
        "spec.template.metadata.labels",
    ),
    "a label is a number": (
        put("spec.template.metadata.labels.app", 1),
        "spec.template.metadata.labels.app",
    ),
    "containers are an object": (put(f"{SPEC}.containers", {}), f"{SPEC}.containers"),
    "a container is a text": (put(f"{SPEC}.containers", ["x"]), f"{SPEC}.containers[0]"),
    "an init container is a number": (
        put(f"{SPEC}.initContainers", [1]),
        f"{SPEC}.initContainers[0]",
    ),
    "affinity is a list": (put(f"{SPEC}.affinity", []), f"{SPEC}.affinity"),
    "resources are a list": (
        put(f"{SPEC}.containers.0.resources", []),
        f"{SPEC}.containers[0].resources",
    ),
    "requests are a text": (put(f"{SPEC}.containers.0.resources.requests", "x"), REQUESTS),
    "an amount is a boolean": (
        put(f"{SPEC}.containers.0.resources.requests.cpu", True),
        f"{REQUESTS}.cpu",
    ),
    "an amount is none": (
        put(f"{SPEC}.containers.0.resources.requests.memory", "1Gib"),
        f"{REQUESTS}.memory",
    ),
    "an amount is too large": (
        put(f"{SPEC}.overhead", {"cpu": "1e999999999"}),
        f"{SPEC}.overhead.cpu",
    ),
    "an amount of a volume is none": (
        put(f"{SPEC}.volumes", [{"name": "v", "emptyDir": {"sizeLimit": "x"}}]),
        f"{SPEC}.volumes[0].emptyDir.sizeLimit",
    ),
    "a claim is a text": (
        put(f"{SPEC}.containers.0.resources.claims", ["c1"]),
        f"{SPEC}.containers[0].resources.claims[0]",
    ),
    "resource claims are an object": (put(f"{SPEC}.resourceClaims", {}), f"{SPEC}.resourceClaims"),
    "ephemeral containers are a text": (
        put(f"{SPEC}.ephemeralContainers", "x"),
        f"{SPEC}.ephemeralContainers",
    ),
    "parallelism is a text": (put("spec.parallelism", "2"), "spec.parallelism"),
    "completions have a fraction": (put("spec.completions", NumberText("1.5")), "spec.completions"),
    "completion mode is a number": (put("spec.completionMode", 1), "spec.completionMode"),
    "selector is a text": (put("spec.selector", "app=train"), "spec.selector"),
    "selector values are a text": (
        put("spec.selector", {"matchExpressions": [{"key": "a", "values": "b"}]}),
        "spec.selector.matchExpressions[0].values",
    ),
    "a Python float": (
        put(f"{SPEC}.containers.0.livenessProbe", {"periodSeconds": 1.5}),
        f"{SPEC}.containers[0].livenessProbe.periodSeconds",
    ),
}


@pytest.mark.parametrize(("change", "field"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_update_is_refused_with_its_path(change: Change, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        job_update_errors(JOB, updated(JOB, change))

    assert caught.value.field == field


UNREADABLE_STORED: Mapping[str, tuple[Change, str]] = {
    "no template": (drop("spec.template"), "old.spec.template"),
    "an amount is none": (
        put(f"{SPEC}.containers.0.resources.requests.memory", "1Gib"),
        f"old.{REQUESTS}.memory",
    ),
    "suspend is a text": (put("spec.suspend", "true"), "old.spec.suspend"),
    "status is a list": (put("status", []), "old.status"),
    "active is a text": (put("status.active", "1"), "old.status.active"),
    "start time is a number": (put("status.startTime", 1), "old.status.startTime"),
    "start time is no time": (put("status.startTime", "now"), "old.status.startTime"),
    "conditions are an object": (put("status.conditions", {}), "old.status.conditions"),
    "a condition is a text": (put("status.conditions", ["x"]), "old.status.conditions[0]"),
    "a condition's status is a boolean": (
        put("status.conditions", [{"type": "Suspended", "status": True}]),
        "old.status.conditions[0].status",
    ),
}


@pytest.mark.parametrize(
    ("change", "field"), UNREADABLE_STORED.values(), ids=UNREADABLE_STORED.keys()
)
def test_an_unreadable_stored_job_is_refused_with_its_path(change: Change, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        job_update_errors(updated(JOB, change), JOB)

    assert caught.value.field == field


def test_a_bad_amount_says_what_was_written() -> None:
    new = updated(JOB, put(f"{SPEC}.containers.0.resources.requests.cpu", "2x"))

    with pytest.raises(InvalidQuantityError) as caught:
        job_update_errors(JOB, new)

    assert caught.value.text == "2x"


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = {"a": [value]}
    return value


def test_endless_nesting_is_refused() -> None:
    deep = {**JOB, "spec": {**at(JOB, "spec"), "successPolicy": nested(50_000)}}

    with pytest.raises(InvalidFieldError, match="nests too deep"):
        job_update_errors(JOB, deep)


@pytest.mark.parametrize("gates", [{"Mutable"}, ["x"], {"NoSuchGate": False}])
def test_an_unknown_gate_is_refused(gates: set[str]) -> None:
    with pytest.raises(InvalidFieldError, match="is not a gate of Job updates"):
        job_update_errors(JOB, JOB, gates)


@st.composite
def damaged_jobs(draw: st.DrawFn) -> object:
    return damaged(JOB, draw(st.sampled_from(list(places(JOB)))), draw(json_values()))


@given(old=damaged_jobs(), new=damaged_jobs())
def test_any_damage_is_found_or_harmless(old: object, new: object) -> None:
    assert outcome(old, new) in {"answered", "refused"}


def outcome(old: object, new: object) -> str:
    try:
        job_update_errors(old, new)  # type: ignore[arg-type]
    except InvalidFieldError:
        return "refused"
    return "answered"
