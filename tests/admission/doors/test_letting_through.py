"""With `pacing: auto` a pod that finds nobody waiting and enough room gets no gate, but a mark."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.admission.doors.conftest import OpenDesk
from tests.admission.doors.desk import NAMESPACE, Desk, Reply, a_review
from tests.admission.doors.test_gates import FOREIGN, OURS, asked, gates_of
from tests.builders import a_quota
from webhook.cluster.api import NAMESPACES
from webhook.state.names import GUARDED_ANNOTATION, LET_THROUGH_ANNOTATION

MARKED = {LET_THROUGH_ANNOTATION: "true"}
FORGED = {"annotations": MARKED}


def opened(open_desk: OpenDesk, cpu: str = "10", **settings: object) -> Desk:
    """A namespace with `auto` pacing by its label, and a quota that is counted."""
    desk = open_desk(a_quota("p1", hard={"requests.cpu": cpu}), settings=settings or None)
    labelled(desk, "auto")
    desk.settle()
    desk.catch_up()
    return desk


def labelled(desk: Desk, pacing: str) -> None:
    labels = {"metadata": {"labels": {"deferredquota.io/pacing": pacing}}}
    desk.api.patch(NAMESPACES, NAMESPACE, labels)
    desk.catch_up()
    desk.settle()


def annotations_of(reply: Reply) -> Any:
    return cast("Any", reply.object["metadata"]).get("annotations")


def is_let_through(reply: Reply) -> bool:
    """Say which it is; a pod is never both marked and gated, nor neither of the two."""
    gates, annotations = gates_of(reply) or [], annotations_of(reply) or {}
    assert (OURS in gates) is (LET_THROUGH_ANNOTATION not in annotations)
    assert reply.decision == ("let-through" if OURS not in gates else "gated")
    return OURS not in gates


def test_a_pod_that_finds_room_gets_a_mark_and_no_gate(open_desk: OpenDesk) -> None:
    reply = asked(opened(open_desk))
    assert is_let_through(reply)
    assert annotations_of(reply) == MARKED
    assert reply.warnings == []


def test_its_own_annotations_stay(open_desk: OpenDesk) -> None:
    desk = opened(open_desk)
    found = {"example.com/a": "b", GUARDED_ANNOTATION: "7"}
    reply = asked(desk, metadata={"annotations": found})
    assert annotations_of(reply) == {"example.com/a": "b", **MARKED}


def test_who_comes_later_is_gated_when_half_of_what_is_free_is_on_its_way(
    open_desk: OpenDesk,
) -> None:
    desk = opened(open_desk, "10")
    assert [is_let_through(asked(desk)) for _ in range(8)] == [True] * 5 + [False] * 3


def test_a_dry_run_takes_no_room(open_desk: OpenDesk) -> None:
    desk = opened(open_desk, "2")
    assert [is_let_through(asked(desk, dry_run=True)) for _ in range(3)] == [True] * 3
    assert is_let_through(asked(desk))
    assert not is_let_through(asked(desk, dry_run=True))


def test_what_is_bound_is_not_free(open_desk: OpenDesk) -> None:
    desk = opened(open_desk, "10")
    desk.pod(name="big", uid="uid-big", requests={"cpu": "9"})
    desk.catch_up()
    assert desk.bind_in_fact("big").allowed
    assert not is_let_through(asked(desk))


def test_nobody_passes_who_waits(open_desk: OpenDesk) -> None:
    desk = opened(open_desk)
    desk.pod(name="first", uid="uid-first", requests={"cpu": "99"}, schedulingGates=[OURS])
    desk.catch_up()
    assert not is_let_through(asked(desk))


PACINGS = {
    "by the label": ("gate", "auto", True),
    "by the configuration": ("auto", "", True),
    "the label wins": ("auto", "gate", False),
    "a label that means nothing": ("auto", "typo", True),
    "neither": ("gate", "", False),
}


@pytest.mark.parametrize(("configured", "label", "may"), PACINGS.values(), ids=PACINGS)
def test_it_goes_by_label_and_configuration(
    open_desk: OpenDesk, configured: str, label: str, may: bool
) -> None:
    desk = opened(open_desk, pacing=configured)
    labels = {"metadata": {"labels": {"deferredquota.io/pacing": label or None}}}
    desk.api.patch(NAMESPACES, NAMESPACE, labels)
    desk.catch_up()
    desk.settle()
    assert is_let_through(asked(desk)) is may


def test_a_pod_that_others_hold_is_gated_too(open_desk: OpenDesk) -> None:
    desk = opened(open_desk)
    assert not is_let_through(asked(desk, schedulingGates=[FOREIGN]))
    queued = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
    assert not is_let_through(asked(desk, metadata=queued))


def test_before_usage_is_counted_every_pod_is_gated(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1"), with_tracker=False, settings={"pacing": "auto"})
    assert not is_let_through(asked(desk))


# -- the mark says that the rules were looked at -------------------------------------------


def test_a_pod_that_breaks_a_rule_is_not_marked_so_that_it_is_refused(
    open_desk: OpenDesk,
) -> None:
    desk = opened(open_desk, requireQuotaForPriority=[])
    silent = asked(desk, requests={"memory": "1Gi"})
    assert annotations_of(silent) is None
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
    desk = opened(open_desk, requireQuotaForPriority=[rule])
    reply = asked(desk, priorityClassName="gold")
    assert not is_let_through(reply)
    refused = desk.validate(a_review("CREATE", "pods", reply.object))
    assert (refused.allowed, refused.code) == (False, 403)


def test_what_passes_is_what_the_other_door_has_nothing_to_say_about(open_desk: OpenDesk) -> None:
    reply = asked(opened(open_desk))
    answer = reply.object
    cast("dict[str, object]", answer["metadata"])["uid"] = "uid-1"
    desk = opened(open_desk)
    validated = desk.validate(a_review("CREATE", "pods", answer))
    assert (validated.allowed, validated.warnings) == (True, [])


def test_a_forged_mark_goes_where_the_pod_is_gated_or_not_concerned(open_desk: OpenDesk) -> None:
    desk = opened(open_desk)
    assert annotations_of(asked(desk, requests={"cpu": "9"}, metadata=FORGED)) == {}
    assert annotations_of(asked(desk, requests={"memory": "1Gi"}, metadata=FORGED)) == {}
    labelled(desk, "gate")
    reply = asked(desk, metadata=FORGED)
    assert not is_let_through(reply)
    assert reply.warnings == []


def test_asked_again_about_its_own_work_it_changes_nothing(open_desk: OpenDesk) -> None:
    desk = opened(open_desk)
    once = asked(desk)
    again = desk.mutate(a_review("CREATE", "pods", once.object))
    assert (again.patch, again.warnings, again.decision) == ([], [], "let-through")


def test_asked_again_when_others_have_made_it_larger_it_gates(open_desk: OpenDesk) -> None:
    desk = opened(open_desk)
    once = asked(desk).object
    sidecar = {"name": "sidecar", "image": "i", "resources": {"requests": {"cpu": "7"}}}
    cast("Any", once["spec"])["containers"].append(sidecar)
    again = desk.mutate(a_review("CREATE", "pods", once))
    assert not is_let_through(again)
    assert again.warnings == []
