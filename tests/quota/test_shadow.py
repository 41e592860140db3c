"""Refused creations under deferral, and how their records add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_pod, a_quota, an_expression
from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.ledger.ledger import QuotaRevision
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.shadow.record import (
    MOST_WORKLOADS,
    MOST_WRITERS,
    Fate,
    Findings,
    QuotaUse,
    ShadowRecord,
    UsageSpan,
    Workload,
    classify,
    native_refusal,
)
from webhook.quota.shadow.record_codec import shadow_from_status, shadow_status, shadow_summary

NOON: Final = "2026-05-04T12:00:00Z"
LATER: Final = "2026-05-04T12:00:10Z"
HARD: Final = {"requests.cpu": "4", "pods": "9"}
FULL: Final = {"requests.cpu": "4", "pods": "4"}


def quota(**fields: object) -> ResourceQuota:
    return ResourceQuota.from_object(a_quota("q", **{"hard": HARD, "used": FULL, **fields}))  # type: ignore[arg-type]


def pod(cpu: str = "1", **fields: object) -> Pod:
    return Pod.from_object(a_pod(requests={"cpu": cpu}, **fields))  # type: ignore[arg-type]


def uses(one: ResourceQuota, assigned: str) -> dict[str, QuotaUse]:
    (deferred,) = deferred_quotas([one], DEFERRED_KEYS).quotas
    amount = Quantity.parse
    spans = {"requests.cpu": UsageSpan.of(amount("4"), amount("4"), amount(assigned))}
    return {"q": QuotaUse(deferred.observed, NOON, 0, spans)}


def fate(one: ResourceQuota, wanted: Pod, assigned: str | None, **how: bool) -> Fate:
    known = None if assigned is None else uses(one, assigned)
    return classify(wanted, [one], deferred_quotas([one], DEFERRED_KEYS), known, **how)


FATES: Final = {
    "quota is free beside what has a node": (quota(), pod(), "3", Fate.RUNS),
    "it is full of what has a node": (quota(), pod(), "4", Fate.WAITS),
    "nearly": (quota(), pod("1001m"), "3", Fate.WAITS),
    "larger than the quota": (quota(), pod("5"), "0", Fate.NEVER_FITS),
    "too large to be counted": (
        quota(),
        pod(limits={"memory": "1e37"}),
        "0",
        Fate.NEVER_FITS,
    ),
    "as large as the quota": (quota(), pod("4"), "0", Fate.RUNS),
    "too many pods": (
        quota(used={"requests.cpu": "4", "pods": "9"}),
        pod(),
        "0",
        Fate.STILL_REFUSED,
    ),
    "too many pods and too large": (
        quota(used={"requests.cpu": "4", "pods": "9"}),
        pod("5"),
        "0",
        Fate.STILL_REFUSED,
    ),
    "an excluded quota": (
        quota(metadata={"annotations": {"deferredquota.io/exclude": "true"}}),
        pod(),
        None,
        Fate.STILL_REFUSED,
    ),
    "usage is not known": (quota(), pod(), None, Fate.UNJUDGED),
    "with a node it does not wait": (quota(), pod(node="n"), "4", Fate.STILL_REFUSED),
    "with a node it is admitted": (quota(), pod(node="n"), "3", Fate.RUNS),
    "with a node, and too large": (quota(), pod("5", node="n"), "0", Fate.STILL_REFUSED),
}


@pytest.mark.parametrize(
    ("one", "wanted", "assigned", "expected"), FATES.values(), ids=FATES.keys()
)
def test_the_fate_of_a_refused_creation(
    one: ResourceQuota, wanted: Pod, assigned: str | None, expected: Fate
) -> None:
    assert native_refusal(wanted, [one])  # the platform refuses it
    assert fate(one, wanted, assigned) is expected


def test_what_a_rule_refuses_is_refused_whatever_is_free() -> None:
    assert fate(quota(), pod(), "0", is_against_rules=True) is Fate.STILL_REFUSED


def test_usage_of_another_spec_judges_nothing() -> None:
    edited = quota(hard={**HARD, "requests.cpu": "8"})
    known = uses(quota(), "1")
    deferred = deferred_quotas([edited], DEFERRED_KEYS)
    assert classify(pod(), [edited], deferred, known) is Fate.UNJUDGED


def test_a_quota_that_cannot_be_evaluated_is_refused_natively_too() -> None:
    odd = quota(expressions=[an_expression("PriorityClass", "In")])
    assert fate(odd, pod(), "0") in {Fate.STILL_REFUSED, Fate.UNJUDGED}


# -- use over time -----------------------------------------------------------------------------

amounts = st.integers(0, 10**12).map(Quantity.of_nano)
milliseconds = st.integers(0, 10**7)
steps = st.lists(st.tuples(amounts, amounts, milliseconds), min_size=1, max_size=12)
Step = tuple[Quantity, Quantity, int]


def span_of(found: list[Step], hard: Quantity) -> UsageSpan:
    total: UsageSpan | None = None
    for charged, assigned, time in found:
        one = UsageSpan.of(hard, charged, assigned).lasting(time)
        total = one if total is None else total.then(one)
    assert total is not None
    return total


@given(found=steps, hard=amounts)
def test_averages_are_weighted_by_time(found: list[Step], hard: Quantity) -> None:
    span, time = span_of(found, hard), sum(one[2] for one in found)
    assert span.charged_area == sum(one[0].nano * one[2] for one in found)
    assert span.charged_peak == max(one[0] for one in found)
    assert span.assigned_peak == max(one[1] for one in found)
    assert span.full_milliseconds == sum(one[2] for one in found if one[0] >= hard)
    assert (span.charged, span.assigned) == found[-1][:2]
    if time:
        assert span.average_assigned(time).nano == sum(o[1].nano * o[2] for o in found) // time


@given(found=steps, cut=st.integers(1, 11), hard=amounts)
def test_it_does_not_matter_when_spans_are_put_together(
    found: list[Step], cut: int, hard: Quantity
) -> None:
    if cut < len(found):
        assert span_of(found[:cut], hard).then(span_of(found[cut:], hard)) == span_of(found, hard)


@given(amount=amounts, time=milliseconds, cut=milliseconds)
def test_a_time_can_be_cut_anywhere(amount: Quantity, time: int, cut: int) -> None:
    span = UsageSpan.of(amount, amount, amount)
    assert span.lasting(time).lasting(cut) == span.lasting(time + cut)


def test_half_the_time_full_and_a_quarter_assigned() -> None:
    amount = Quantity.parse
    full = UsageSpan.of(amount("4"), amount("4"), amount("1")).lasting(500)
    empty = UsageSpan.of(amount("4"), amount("0"), amount("0")).lasting(500)
    span = full.then(empty)
    assert str(span.average_charged(1000)) == "2"
    assert str(span.average_assigned(1000)) == "500m"
    assert str(span.assigned_while_full) == "1"
    assert span.full_milliseconds == 500


def test_another_spec_begins_anew() -> None:
    before = uses(quota(), "1")["q"]
    observed = QuotaRevision("q", "uid", "another")
    after = replace(before, observed=observed, milliseconds=5)
    assert replace(before, milliseconds=70).then(after) == after


# -- records -----------------------------------------------------------------------------------


def workload(name: str, last: str = NOON, attempts: int = 1, kind: Fate = Fate.WAITS) -> Workload:
    return Workload(name, attempts, kind, NOON, last)


def added(record: ShadowRecord, number: int, *, writer: str = "a", **found: object) -> ShadowRecord:
    findings = Findings(**found)  # type: ignore[arg-type]
    return record.with_findings(findings, writer=writer, number=number, now=LATER)


EMPTY: Final = ShadowRecord(NOON, NOON)


def test_an_addition_counts_once_however_often_it_is_made() -> None:
    once = added(EMPTY, 1, counts={"attempts": 2, "wouldWait": 1})
    assert added(once, 1, counts={"attempts": 2, "wouldWait": 1}) is once
    twice = added(once, 2, counts={"attempts": 1})
    assert twice.counts == {"attempts": 3, "wouldWait": 1}
    other = added(twice, 1, writer="b", counts={"attempts": 4})
    assert other.count("attempts") == 7
    assert (other.since, other.until) == (NOON, LATER)


def test_writers_that_come_and_go_leave_no_more_than_some_behind() -> None:
    record = EMPTY
    for number in range(40):
        record = added(record, 1, writer=f"w{number}", counts={"attempts": 1})
    assert record.count("attempts") == 40
    assert len(record.writers) == MOST_WRITERS
    assert "w39" in record.writers


def test_a_correction_takes_back_but_never_below_nothing() -> None:
    record = added(EMPTY, 1, counts={"refused": 1, "wouldRun": 1})
    corrected = added(record, 2, counts={"refused": -1, "wouldRun": -2, "stored": 1})
    assert corrected.counts == {"stored": 1, "refused": 0, "wouldRun": 0}


def test_a_workload_that_tries_again_and_again_is_one() -> None:
    found = (Workload("ReplicaSet/web", 1, Fate.RUNS, LATER, LATER),) * 300
    waits = (workload("ReplicaSet/web"), workload("ReplicaSet/web", LATER), workload("Pod/b"))
    record = added(EMPTY, 1, workloads=(*found, *waits))
    assert record.workloads == (
        Workload("ReplicaSet/web", 300, Fate.RUNS, LATER, LATER),
        Workload("ReplicaSet/web", 2, Fate.WAITS, NOON, LATER),
        workload("Pod/b"),
    )


def test_only_the_latest_workloads_are_named() -> None:
    many = tuple(workload(f"Pod/{number}", f"{number:06}") for number in range(MOST_WORKLOADS + 7))
    record = added(EMPTY, 1, workloads=many)
    assert len(record.workloads) == MOST_WORKLOADS
    assert record.workloads[0].name == f"Pod/{MOST_WORKLOADS + 6}"
    assert record.unlisted == 7
    longest = max(len(shadow_status(record)), len(encode_json(shadow_status(record))))
    assert longest < 64 * 1024


def test_a_record_stays_small_whatever_names_are() -> None:
    many = tuple(workload("x" * 5000 + str(number)) for number in range(200))
    record = added(EMPTY, 1, workloads=many, examples={"refused": "y" * 10**6})
    assert len(encode_json(shadow_status(record))) < 64 * 1024


def test_only_a_program_that_watches_quotas_says_which_there_are() -> None:
    watched = added(EMPTY, 1, quotas=uses(quota(), "1"))
    assert added(watched, 2).quotas == watched.quotas
    assert added(watched, 2, quotas={}).quotas == {}


def test_a_record_reads_back_as_it_was_written() -> None:
    spans = uses(quota(), "1500m")
    lasting = {
        name: replace(
            use,
            milliseconds=10**9,
            resources={key: span.lasting(10**9) for key, span in use.resources.items()},
        )
        for name, use in spans.items()
    }
    record = added(
        EMPTY,
        3,
        counts={"attempts": 2, "refused": 1, "wouldWait": 1, "boundOver": 1},
        workloads=(workload("ReplicaSet/web"),),
        quotas=lasting,
        examples={"refused": "exceeded quota"},
    )
    written = decode_json(encode_json(shadow_status(record)))
    assert shadow_from_status(written) == record
    assert shadow_summary(record.quotas) == "shadow: q requests.cpu 1500m/4 (charged 4)"
    assert shadow_summary({}) == "shadow"


@pytest.mark.parametrize("raw", [None, {}])
def test_no_record_is_none(raw: object) -> None:
    assert shadow_from_status(raw) is None


BROKEN: Final = {
    "a negative count": ({"counts": {"attempts": -1}}, "status.shadow.counts.attempts"),
    "an unknown fate": (
        {"workloads": [{"name": "a", "fate": "x"}]},
        "status.shadow.workloads[0].fate",
    ),
    "a writer without number": ({"writers": ["a"]}, "status.shadow.writers[0]"),
    "no quantity": (
        {"quotas": [{"name": "q", "resources": {"cpu": {"hard": "x"}}}]},
        "status.shadow.quotas[0].resources.cpu.hard",
    ),
    "an area that is none": (
        {"quotas": [{"name": "q", "resources": {"cpu": {"chargedArea": "1.5"}}}]},
        "status.shadow.quotas[0].resources.cpu.chargedArea",
    ),
}


@pytest.mark.parametrize(("raw", "field"), BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_be_read_is_named(raw: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        shadow_from_status({"since": NOON, **raw})
    assert caught.value.field == field
