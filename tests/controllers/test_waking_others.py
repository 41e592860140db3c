"""No namespace keeps another asleep, none is woken for what others hold, or where nobody asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.doors.desk import a_namespace, eventually, new_cluster, opt_out
from tests.builders import a_quota
from tests.cluster.faults import Call, Fault
from tests.controllers.rig import NAMESPACE, Rig
from tests.controllers.sharers import shared_quota, steps
from tests.controllers.test_waking import NO_NODE, REFUSED, Bell
from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES, RESOURCE_QUOTAS
from webhook.cluster.errors import ForbiddenError
from webhook.quota.grants import Grants
from webhook.state.names import MODE_LABEL

OTHER = "team-b"
SHARED = REFUSED.replace("p1", "cdq/both")


@pytest.fixture
def bell() -> Iterator[Bell]:
    """Two namespaces with a quota of 2 cpu each."""
    cluster = new_cluster()
    cluster.load(
        [
            (NAMESPACES, a_namespace()),
            (NAMESPACES, a_namespace(OTHER)),
            (RESOURCE_QUOTAS, a_quota("p1")),
            (RESOURCE_QUOTAS, a_quota("p1", namespace=OTHER)),
        ]
    )
    yield from _ringing(Rig(cluster))


@pytest.fixture
def sharing() -> Iterator[Bell]:
    """Two namespaces that share a quota of 4 cpu, which the other one uses up."""
    cluster = new_cluster()
    cluster.load(
        [
            (NAMESPACES, a_namespace()),
            (NAMESPACES, a_namespace(OTHER)),
            (CLUSTER_DEFERRED_QUOTAS, shared_quota("4")),
        ]
    )
    for made in _ringing(Rig(cluster, follows=True)):
        steps(made.rig)
        made.rig.pod("big", "4", OTHER, node="n1")
        steps(made.rig)
        yield made


def _ringing(rig: Rig) -> Iterator[Bell]:
    made = Bell(rig)
    rig.start()
    try:
        rig.step()
        yield made
    finally:
        rig.stop()


def refuse(bell: Bell, *names: str) -> None:
    """Let a policy refuse every change of these pods."""

    def before(call: Call) -> None:
        bell._note(call)
        if call.verb == "patch" and call.key.partition("/")[2] in names:
            raise ForbiddenError("a policy does not let it be changed")

    bell.api.before = before


# -- other namespaces ------------------------------------------------------------------------


def test_a_pod_that_may_not_be_changed_keeps_nobody_asleep(bell: Bell) -> None:
    bell.refused("a", "b")
    bell.refused("c", namespace=OTHER)
    refuse(bell, "a")
    assert sorted(bell.look()) == ["a", "b", "c"]


def test_a_pod_that_may_not_be_changed_is_tried_less_and_less_often(bell: Bell) -> None:
    bell.refused("a")
    refuse(bell, "a")
    for _ in range(600):
        bell.look(after=1)
    assert 6 <= bell.touched.count("a") <= 10
    bell.api.before = bell._note
    for _ in range(300):
        bell.look(after=1)
    assert bell.annotation("a")


def test_a_namespace_in_which_nothing_is_answered_keeps_no_other_asleep(bell: Bell) -> None:
    bell.refused("a", "b")
    bell.refused("c", namespace=OTHER)
    bell.api.plan = lambda call: Fault.FAIL_BEFORE if call.key.startswith(f"{NAMESPACE}/") else None
    assert bell.look() == ["c"]
    tries = len(bell.reads)
    for _ in range(60):
        bell.look(after=1)
    assert len(bell.reads) - tries <= 8


def test_what_fails_in_no_foreseen_way_keeps_no_other_asleep(bell: Bell) -> None:
    bell.refused("a")
    bell.refused("c", namespace=OTHER)

    def before(call: Call) -> None:
        bell._note(call)
        if call.key.startswith(f"{NAMESPACE}/"):
            raise ValueError("it cannot be read")

    bell.api.before = before
    assert bell.look() == ["c"]


def test_a_namespace_that_takes_all_that_may_be_sent_comes_last_in_the_next_round(
    bell: Bell,
) -> None:
    names = [f"n{number:03}" for number in range(120)]
    bell.refused(*names, cpu="1m", message=NO_NODE)
    bell.refused("mine", namespace=OTHER)
    bell.look()
    assert len(bell.reads) == 100
    assert bell.look(after=0.1) == ["mine"]


def test_pods_that_have_no_node_for_another_reason_are_not_read_at_every_word(bell: Bell) -> None:
    for number in range(60):
        if number:
            bell.says("a", NO_NODE)
        else:
            bell.refused("a", message=NO_NODE)
        bell.look(after=1)
    assert len(bell.reads) <= 8
    bell.says("a", REFUSED)
    for _ in range(60):
        bell.look(after=1)
    assert bell.touched[:1] == ["a"]


# -- in vain -----------------------------------------------------------------------------------


def test_one_that_is_refused_though_there_seems_to_be_room_is_woken_ever_less_often(
    bell: Bell,
) -> None:
    bell.refused("a")
    for _ in range(1000):
        for name in bell.look(after=1):
            bell.says(name, REFUSED)
    assert 8 <= len(bell.touched) <= 12
    before = len(bell.touched)
    patch = {"spec": {"hard": {"requests.cpu": "3"}}}
    bell.rig.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    bell.look(after=1)
    bell.look(after=16)
    assert len(bell.touched) == before + 1


# -- shared quotas -------------------------------------------------------------------------------


def test_nobody_is_woken_for_what_another_namespace_holds(sharing: Bell) -> None:
    sharing.refused("a", message=SHARED)
    steps(sharing.rig)
    # as a leader knows it who has just begun: nothing in it says what others hold
    sharing.rig.ledgers._places.clear()
    sharing.rig.ledgers.fetch(NAMESPACE)
    for _ in range(60):
        assert sharing.look(after=1) == []
    assert sharing.reads == []


def test_what_another_namespace_gives_back_wakes(sharing: Bell) -> None:
    sharing.refused("a", message=SHARED)
    assert sharing.look(after=1) == []
    sharing.rig.finish("big", OTHER)
    woken = [name for _ in range(8) for name in sharing.look(after=1)]
    assert woken == ["a"]


def test_nobody_is_woken_while_nothing_can_be_granted(sharing: Bell) -> None:
    sharing.rig.finish("big", OTHER)
    steps(sharing.rig)
    known = sharing.rig.store.fetch("cdq/both")
    assert known is not None
    sharing.rig.store.write(known, Grants({}))  # somebody has emptied its status
    sharing.rig.term[0] = 2
    sharing.refused("a", message=SHARED)
    sharing.rig.catch_up()
    sharing.waker.work()
    assert sharing.touched == []


# -- namespaces that opt out -----------------------------------------------------------------------


def leave(bell: Bell, mode: str | None) -> None:
    patch = {"metadata": {"labels": {MODE_LABEL: mode}}}
    bell.rig.api.patch(NAMESPACES, NAMESPACE, patch)
    eventually(
        lambda: bell.rig.namespaces.informer.get(NAMESPACE) is not True, "the cache knows it"
    )


@pytest.mark.parametrize("mode", ["shadow", None])
def test_who_was_there_when_it_opted_out_is_woken_once(bell: Bell, mode: str | None) -> None:
    bell.refused("a", cpu="9")
    assert bell.look() == []
    leave(bell, mode)
    assert bell.look() == ["a"]
    for _ in range(400):
        for name in bell.look(after=1):
            bell.says(name, REFUSED)
    assert bell.touched == ["a"]


def test_who_comes_after_it_has_opted_out_is_neither_read_nor_touched(bell: Bell) -> None:
    bell.refused("a", cpu="9")
    bell.look()
    leave(bell, "shadow")
    bell.look()
    reads = len(bell.reads)
    bell.refused("late")
    for _ in range(20):
        bell.look(after=1)
    assert "late" not in bell.touched
    assert len(bell.reads) == reads


def test_who_has_no_node_for_another_reason_is_not_woken_when_it_opts_out(bell: Bell) -> None:
    bell.refused("a", cpu="9", message=NO_NODE)
    bell.look()
    leave(bell, "shadow")
    bell.look()
    bell.says("a", REFUSED)
    assert bell.look(after=100) == []


def test_one_that_rests_is_woken_when_its_namespace_opts_out(bell: Bell) -> None:
    bell.refused("a")
    for _ in range(30):
        for name in bell.look(after=1):
            bell.says(name, REFUSED)
    before = len(bell.touched)
    opt_out(bell.rig.api, NAMESPACE)
    bell.look()
    assert bell.touched[before:] == ["a"]


def test_a_namespace_that_is_back_is_judged_by_its_quota_again(bell: Bell) -> None:
    bell.refused("a", cpu="9")
    bell.look()
    leave(bell, "shadow")
    assert bell.look() == ["a"]
    bell.rig.api.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {MODE_LABEL: "deferred"}}})
    bell.says("a", REFUSED)
    for _ in range(20):
        assert bell.look(after=1) == []
    patch = {"spec": {"hard": {"requests.cpu": "20"}}}
    bell.rig.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    assert [name for _ in range(5) for name in bell.look(after=1)] == ["a"]
