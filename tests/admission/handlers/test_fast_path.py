"""With `gating: auto` a pod that finds room for itself and all before it gets a mark, no gate."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.gating import FOREIGN, OURS, asked, gates_of
from tests.admission.handlers.harness import (
    NAMESPACE,
    AdmissionHarness,
    Reply,
    a_review,
    eventually,
)
from tests.builders import a_pod, a_quota, an_expression
from webhook.kube.api import NAMESPACES
from webhook.state.well_known import (
    DEFAULT_NAMESPACE,
    GUARDED_ANNOTATION,
    UNGATED_ANNOTATION,
    controller_user,
)

MARKED = {UNGATED_ANNOTATION: "true"}
FORGED = {"annotations": MARKED}


def opened(open_harness: OpenHarness, cpu: str = "10", **settings: object) -> AdmissionHarness:
    """A namespace with `auto` gating by its label, and a quota that is counted."""
    harness = open_harness(a_quota("p1", hard={"requests.cpu": cpu}), settings=settings or None)
    labelled(harness, "auto")
    harness.wait_until_settled()
    harness.catch_up()
    return harness


def labelled(harness: AdmissionHarness, gating: str) -> None:
    labels = {"metadata": {"labels": {"deferredquota.io/gating": gating}}}
    harness.api.patch(NAMESPACES, NAMESPACE, labels)
    harness.catch_up()
    harness.wait_until_settled()


def annotations_of(reply: Reply) -> Any:
    return cast("Any", reply.object["metadata"]).get("annotations")


def is_let_through(reply: Reply) -> bool:
    """Say which it is; a pod is never both marked and gated, nor neither of the two."""
    gates, annotations = gates_of(reply) or [], annotations_of(reply) or {}
    assert (OURS in gates) is (UNGATED_ANNOTATION not in annotations)
    assert reply.decision == ("ungated" if OURS not in gates else "gated")
    return OURS not in gates


def test_a_pod_that_finds_room_gets_a_mark_and_no_gate(open_harness: OpenHarness) -> None:
    reply = asked(opened(open_harness))
    assert is_let_through(reply)
    assert list(annotations_of(reply)) == [UNGATED_ANNOTATION]
    assert reply.warnings == []


def test_its_own_annotations_stay(open_harness: OpenHarness) -> None:
    harness = opened(open_harness)
    found = {"example.com/a": "b", GUARDED_ANNOTATION: "7"}
    reply = asked(harness, metadata={"annotations": found})
    kept = annotations_of(reply)
    assert kept.pop(UNGATED_ANNOTATION)
    assert kept == {"example.com/a": "b"}


def test_a_later_pod_is_gated_when_half_of_what_is_free_is_on_its_way(
    open_harness: OpenHarness,
) -> None:
    harness = opened(open_harness, "10")
    assert [is_let_through(asked(harness)) for _ in range(8)] == [True] * 5 + [False] * 3


def test_a_dry_run_takes_no_room(open_harness: OpenHarness) -> None:
    harness = opened(open_harness, "2")
    assert [is_let_through(asked(harness, dry_run=True)) for _ in range(3)] == [True] * 3
    assert is_let_through(asked(harness))
    assert not is_let_through(asked(harness, dry_run=True))


def test_a_pod_is_gated_while_reservations_fill_half_of_the_ledger(
    open_harness: OpenHarness,
) -> None:
    """Its bind might find no room there, and a scheduler evict others for it in vain."""
    harness = opened(open_harness, "100", limits={"reservationsPerNamespace": 8})
    for number in range(7):
        fields: Any = {"schedulingGates": [OURS], "schedulerName": "nobody"}
        harness.pod(name=f"n{number}", uid=f"uid-n{number}", requests={"cpu": "1m"}, **fields)
    eventually(lambda: len(harness.reservations()) == 6, "three quarters are reserved")
    harness.catch_up()
    harness.wait_until_settled()
    assert not is_let_through(asked(harness))
    for name in ("old-1", "old-2"):
        harness.pod(name=name, uid=f"uid-{name}", requests={"cpu": "1"})
    harness.catch_up()
    assert harness.bind("old-1", uid="uid-old-1").allowed
    assert harness.bind("old-2", uid="uid-old-2").allowed
    assert harness.bind("n0", uid="uid-n0").allowed, "which has its place"


def test_what_is_bound_is_not_free(open_harness: OpenHarness) -> None:
    harness = opened(open_harness, "10")
    harness.pod(name="big", uid="uid-big", requests={"cpu": "9"})
    harness.catch_up()
    assert harness.bind_in_fact("big").allowed
    assert not is_let_through(asked(harness))


def test_no_new_pod_passes_one_that_waits(open_harness: OpenHarness) -> None:
    harness = opened(open_harness)
    harness.pod(name="first", uid="uid-first", requests={"cpu": "9"}, schedulingGates=[OURS])
    harness.catch_up()
    assert not is_let_through(asked(harness))


def test_a_waiting_pod_keeps_no_other_while_there_is_room_for_both(
    open_harness: OpenHarness,
) -> None:
    harness = opened(open_harness, "20")
    for number in range(4):
        name = f"gated-{number}"
        harness.pod(name=name, uid=name, requests={"cpu": "1"}, schedulingGates=[OURS])
    harness.catch_up()
    assert is_let_through(asked(harness))


def test_a_pod_that_waits_for_a_resource_that_others_do_not_ask_for_holds_them_all_the_same(
    open_harness: OpenHarness,
) -> None:
    """As in the line, where it holds those that were gated before they came."""
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "20", "requests.memory": "1Gi"}))
    labelled(harness, "auto")
    both, small = {"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "0"}
    harness.pod(name="runs", uid="uid-runs", node="node-1", requests=both)
    harness.wait_until_settled()
    harness.catch_up()
    assert is_let_through(asked(harness, requests=small, dry_run=True))
    harness.pod(name="first", uid="uid-first", requests=both, schedulingGates=[OURS])
    harness.pod(name="second", uid="uid-second", requests=small, schedulingGates=[OURS])
    harness.wait_until_settled()
    harness.catch_up()
    assert harness.reservations() == {}  # the first holds the second
    assert not is_let_through(asked(harness, requests=small))


def test_one_that_waits_for_something_else_keeps_no_other(open_harness: OpenHarness) -> None:
    harness = opened(open_harness)
    harness.pod(name="huge", uid="uid-huge", requests={"cpu": "99"}, schedulingGates=[OURS])
    held = [OURS, FOREIGN]
    harness.pod(name="held", uid="uid-held", requests={"cpu": "1"}, schedulingGates=held)
    harness.catch_up()
    assert is_let_through(asked(harness))


def test_one_that_never_fits_leaves_it_to_the_others_whether_there_is_room(
    open_harness: OpenHarness,
) -> None:
    harness = opened(open_harness, "20")
    for name, cpu in (("huge", "99"), ("small", "3")):
        harness.pod(name=name, uid=name, requests={"cpu": cpu}, schedulingGates=[OURS])
    harness.catch_up()
    assert is_let_through(asked(harness))


def test_one_that_waits_for_another_quota_keeps_no_other(open_harness: OpenHarness) -> None:
    gold = an_expression("PriorityClass", "In", "gold")
    silver = an_expression("PriorityClass", "In", "silver")
    hard = {"requests.cpu": "10"}
    harness = open_harness(
        a_quota("a", uid="a", hard=hard, expressions=[gold]),
        a_quota("b", uid="b", hard=hard, expressions=[silver]),
    )
    labelled(harness, "auto")
    of_gold: dict[str, Any] = {"priorityClassName": "gold", "requests": {"cpu": "9"}}
    harness.pod(name="runs", uid="uid-runs", node="node-1", **of_gold)
    harness.wait_until_settled()
    harness.pod(name="first", uid="uid-first", schedulingGates=[OURS], **of_gold)
    harness.wait_until_settled()
    harness.catch_up()
    assert not is_let_through(asked(harness, priorityClassName="gold"))
    assert is_let_through(asked(harness, priorityClassName="silver"))


def test_room_is_kept_for_released_pods_before_waiting_ones(
    open_harness: OpenHarness,
) -> None:
    """The engine tells its controller which namespaces let pods through."""
    harness = opened(open_harness, "2")
    harness.pod(name="early", uid="uid-early", requests={"cpu": "1"})
    harness.pod(name="late", uid="uid-late", requests={"cpu": "2"}, schedulingGates=[OURS])
    eventually(lambda: set(harness.reservations()) == {"early"}, "room is kept for the first")


GATINGS = {
    "by the label": ("always", "auto", True),
    "by the configuration": ("auto", "", True),
    "the label wins": ("auto", "always", False),
    "a label that means nothing": ("auto", "typo", True),
    "neither": ("always", "", False),
}


@pytest.mark.parametrize(("configured", "label", "may"), GATINGS.values(), ids=GATINGS)
def test_it_goes_by_label_and_configuration(
    open_harness: OpenHarness, configured: str, label: str, may: bool
) -> None:
    harness = opened(open_harness, gating=configured)
    labels = {"metadata": {"labels": {"deferredquota.io/gating": label or None}}}
    harness.api.patch(NAMESPACES, NAMESPACE, labels)
    harness.catch_up()
    harness.wait_until_settled()
    assert is_let_through(asked(harness)) is may


def test_a_pod_that_others_hold_is_gated_too(open_harness: OpenHarness) -> None:
    harness = opened(open_harness)
    assert not is_let_through(asked(harness, schedulingGates=[FOREIGN]))
    queued = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
    assert not is_let_through(asked(harness, metadata=queued))


def test_before_usage_is_counted_every_pod_is_gated(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), with_controller=False, settings={"gating": "auto"})
    assert not is_let_through(asked(harness))


# -- the mark says that the rules were looked at -------------------------------------------


def test_a_pod_that_breaks_a_rule_is_not_marked_so_that_it_is_refused(
    open_harness: OpenHarness,
) -> None:
    harness = opened(open_harness, requireQuotaForPriority=[])
    silent = asked(harness, requests={"memory": "1Gi"})
    assert annotations_of(silent) is None
    forged = asked(harness, status={"qosClass": "Guaranteed"})
    assert not is_let_through(forged)
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
    harness = opened(open_harness, requireQuotaForPriority=[rule])
    reply = asked(harness, priorityClassName="gold")
    assert not is_let_through(reply)
    refused = harness.validate(a_review("CREATE", "pods", reply.object))
    assert (refused.allowed, refused.code) == (False, 403)


def test_what_passes_is_what_the_other_handler_has_nothing_to_say_about(
    open_harness: OpenHarness,
) -> None:
    reply = asked(opened(open_harness))
    answer = reply.object
    cast("dict[str, object]", answer["metadata"])["uid"] = "uid-1"
    harness = opened(open_harness)
    validated = harness.validate(a_review("CREATE", "pods", answer))
    assert (validated.allowed, validated.warnings) == (True, [])


def test_a_forged_mark_goes_where_the_pod_is_gated_or_not_concerned(
    open_harness: OpenHarness,
) -> None:
    harness = opened(open_harness)
    assert annotations_of(asked(harness, requests={"cpu": "9"}, metadata=FORGED)) == {}
    assert annotations_of(asked(harness, requests={"memory": "1Gi"}, metadata=FORGED)) == {}
    labelled(harness, "always")
    reply = asked(harness, metadata=FORGED)
    assert not is_let_through(reply)
    assert reply.warnings == []


def test_nor_do_users_that_may_write_marks_keep_one_that_is_not_true(
    open_harness: OpenHarness,
) -> None:
    harness = opened(open_harness)
    labelled(harness, "always")
    pod = a_pod(requests={"cpu": "1"}, metadata=FORGED)
    reply = harness.mutate(a_review("CREATE", "pods", pod, user=controller_user(DEFAULT_NAMESPACE)))
    assert (gates_of(reply), annotations_of(reply)) == ([OURS], {})


def test_in_doubt_a_mark_goes_too(open_harness: OpenHarness) -> None:
    reply = asked(opened(open_harness), metadata=FORGED, seconds=-1)
    assert (gates_of(reply), annotations_of(reply)) == ([OURS], {})


def test_asked_again_about_its_own_work_it_changes_nothing(open_harness: OpenHarness) -> None:
    harness = opened(open_harness)
    once = asked(harness)
    again = harness.mutate(a_review("CREATE", "pods", once.object))
    assert (again.patch, again.warnings, again.decision) == ([], [], "ungated")


def test_asked_again_when_others_have_made_it_larger_it_gates(open_harness: OpenHarness) -> None:
    harness = opened(open_harness)
    once = asked(harness).object
    sidecar = {"name": "sidecar", "image": "i", "resources": {"requests": {"cpu": "7"}}}
    cast("Any", once["spec"])["containers"].append(sidecar)
    again = harness.mutate(a_review("CREATE", "pods", once))
    assert not is_let_through(again)
    assert again.warnings == []
