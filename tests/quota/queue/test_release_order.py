"""One cycle of the queue: which gates are removed, and the status of the pods that stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_container, a_pod, a_quota, an_expression
from tests.quota.queue.queue_criteria import GATE, STRICT, Object, ledger_of, terms_of
from webhook.quota.amounts.resources import parse_resource_list
from webhook.quota.charging.coverage import CoverageRules
from webhook.quota.charging.limited_resources import LimitedResource
from webhook.quota.ledger.ledger import (
    Admitted,
    Denied,
    Ledger,
    Reservation,
    ReservationSource,
    admit,
    exceeded_quotas,
)
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.model import Pod, ScopeExpression
from webhook.quota.queue.queued_pods import (
    CycleResult,
    PendingReason,
    QueueCriteria,
    QueuedPod,
    QueueingStrategy,
    QueuePolicy,
    WaitHistory,
    is_queued,
    to_queued_pod,
    with_retried,
)
from webhook.quota.queue.release_order import run_cycle

POOL = "cdq/epool.default"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
BEST = QueuePolicy(order=QueueingStrategy.BEST_EFFORT)


def gated(name: str, cpu: str = "1", *others: str, age: int = 0, **fields: object) -> Object:
    """A pod behind our gate, created `age` seconds before noon."""
    created = (NOON - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    gates = [{"name": gate} for gate in (*others, GATE)]
    fields = {"requests": {"cpu": cpu}, "schedulingGates": gates, **fields}
    metadata = {"creationTimestamp": created, "resourceVersion": "7"}
    return a_pod(name=name, uid=f"uid-{name}", metadata=metadata, **fields)  # type: ignore[arg-type]


def line_of(terms: QueueCriteria, *pods: Object) -> list[QueuedPod]:
    found = [
        to_queued_pod(Pod.from_object(one), GATE, since=number, terms=terms)
        for number, one in enumerate(pods, 1)
    ]
    return sorted(found, key=lambda one: one.sort_key)


def run(
    terms: QueueCriteria, *pods: Object, ledger: Ledger | None = None, **given: object
) -> CycleResult:
    known = ledger or ledger_of(terms)
    given = {"room": 1000, **given}
    return run_cycle(known, line_of(terms, *pods), terms.rules, **given)  # type: ignore[arg-type]


def names(waiters: Sequence[QueuedPod]) -> list[str]:
    return [one.pod.name for one in waiters]


def reasons(passed: CycleResult) -> dict[str, tuple[PendingReason, int, str]]:
    return {
        uid.removeprefix("uid-"): (one.reason, one.position, one.blocked_by)
        for uid, one in passed.pending.items()
    }


def many(count: int) -> list[Object]:
    return [gated(f"p{number}", age=count - number) for number in range(1, count + 1)]


# -- who goes ------------------------------------------------------------------------------


def test_those_that_fit_go_in_the_order_of_their_age() -> None:
    passed = run(terms_of(a_quota("p1", hard={"requests.cpu": "10"})), *reversed(many(40)))
    assert names(passed.released) == [f"p{number}" for number in range(1, 11)]
    assert passed.ledger is not None
    assert str(passed.ledger.accounts["p1"].reserved["requests.cpu"]) == "10"
    assert {one.source for one in passed.ledger.reservations.values()} == {
        ReservationSource.RELEASE
    }
    assert [one.position for one in passed.pending.values()] == list(range(1, 31))


def refused(name: str, cpu: str = "1", **fields: Any) -> Object:
    """A pod that was released, and whose bind was refused."""
    denied = (
        'admission webhook "bind.deferredquota.io" denied the request: elastic pool p is used up'
    )
    said = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}
    said["message"] = f'running Bind plugin "DefaultBinder": {denied}'
    return gated(name, cpu, schedulingGates=[], status={"conditions": [said]}, **fields)


def after_refusals(
    gated_pods: list[Object], refused_pods: list[Object], used: str, **given: Any
) -> CycleResult:
    """A cycle over a pool of 4 cpu, with pods whose bind was refused."""
    terms = terms_of(a_quota(POOL, hard={"requests.cpu": "4"}))
    ledger = ledger_of(terms, **{POOL: {"requests.cpu": used}})
    queue = with_retried(tuple(line_of(terms, *gated_pods)), line_of(terms, *refused_pods))
    return run_cycle(ledger, queue, terms.rules, room=9, **given)


def test_a_pod_whose_bind_was_refused_waits_while_the_pool_is_used_up() -> None:
    passed = after_refusals([gated("late")], [refused("early", age=9)], "4")
    assert reasons(passed) == {
        "early": (PendingReason.QUOTA_EXCEEDED, 1, ""),
        "late": (PendingReason.QUOTA_EXCEEDED, 2, ""),
    }
    history = {uid: WaitHistory(seconds=1.0) for uid in passed.pending}
    passed = after_refusals([gated("late")], [refused("early", age=9)], "3", history=history)
    assert names(passed.released) == ["early"]
    assert passed.releasable == ()
    assert reasons(passed) == {"late": (PendingReason.QUOTA_EXCEEDED, 1, "")}


def test_one_that_has_not_waited_is_left_to_its_next_bind() -> None:
    passed = after_refusals([gated("late")], [refused("early", age=9)], "3")
    assert names(passed.released) == ["late"]
    assert passed.pending == {}


def test_it_holds_no_other_pod() -> None:
    passed = after_refusals([gated("late")], [refused("early", "2", age=9)], "3")
    assert names(passed.released) == ["late"]
    assert reasons(passed) == {"early": (PendingReason.QUOTA_EXCEEDED, 1, "")}


def test_only_the_first_of_very_many_have_a_place() -> None:
    names = [f"p{number}" for number in range(100)]
    pods = [refused(name, age=number) for number, name in enumerate(names)]
    passed = after_refusals([gated("late")], pods, "4")
    places = [uid.removeprefix("uid-") for uid in passed.pending]
    assert places == [*reversed(names[-64:]), "late"]


@pytest.mark.parametrize("used", ["0", "4"])
def test_one_that_can_never_fit_is_not_in_the_queue(used: str) -> None:
    passed = after_refusals([], [refused("huge", "5")], used)
    assert (passed.released, passed.pending) == ((), {})


def test_only_pods_of_pools_are_in_the_queue_for_a_refused_bind() -> None:
    terms = terms_of(a_quota("p1", hard={"requests.cpu": "4"}))
    assert with_retried((), line_of(terms, refused("early"))) == ()


def test_of_one_second_the_first_seen_goes_first() -> None:
    passed = run(terms_of(a_quota("p1")), *[gated(name) for name in "dcba"])
    assert names(passed.released) == ["d", "c"]


def test_a_higher_priority_goes_first_however_young() -> None:
    pods = [*many(5), gated("late", priority=100), gated("lazy", age=100, priority=-1)]
    passed = run(terms_of(a_quota("p1", hard={"requests.cpu": "3"})), *pods)
    assert names(passed.released) == ["late", "p1", "p2"]
    assert list(passed.pending)[-1] == "uid-lazy"


def test_a_pod_that_no_quota_selects_goes_without_a_reservation() -> None:
    gold = an_expression("PriorityClass", "In", "gold")
    passed = run(terms_of(a_quota("p1", expressions=[gold])), gated("plain", "99"))
    assert names(passed.free) == ["plain"]
    assert passed.ledger is not None
    assert passed.ledger.reservations == {}


def test_without_quotas_and_ledger_every_pod_goes() -> None:
    terms = terms_of()
    passed = run_cycle(None, line_of(terms, *many(3)), STRICT, room=0)
    assert names(passed.releasable) == ["p1", "p2", "p3"]
    assert passed.ledger is None


def test_a_pod_that_was_reserved_for_is_not_reserved_for_again() -> None:
    terms = terms_of(a_quota("p1"))
    first = run(terms, *many(3))
    assert first.ledger is not None
    second = run(terms, *many(3), ledger=first.ledger)
    assert names(second.reserved) == ["p1", "p2"]
    assert (second.released, second.ledger) == ((), first.ledger)


def test_no_pod_is_released_into_what_another_is_short_of() -> None:
    terms = terms_of(a_quota("p1", hard={"requests.cpu": "4"}))
    known = ledger_of(terms)
    held, takes = (
        parse_resource_list({"requests.cpu": cpu}, field="requests") for cpu in ("1", "4")
    )
    short = Reservation(
        "uid-m", "m", ReservationSource.CREATE, takes, {"p1": held}, ("p1",), 1, is_capped=True
    )
    account = replace(known.accounts["p1"], reserved=held)
    known = replace(known, accounts={"p1": account}, reservations={"uid-m": short})
    passed = run(terms, *many(2), ledger=known)
    assert (passed.released, passed.ledger) == ((), known)
    assert reasons(passed)["p1"][0] is PendingReason.NOT_COUNTED
    assert reasons(passed)["p2"] == (PendingReason.BEHIND, 1, "p1")


def test_a_resize_that_is_on_its_way_is_reserved_for() -> None:
    terms = terms_of(a_quota("p1", hard={"requests.cpu": "4"}))
    usage = parse_resource_list({"requests.cpu": "3"}, field="")
    intent = Reservation(
        "uid-a",
        "a",
        ReservationSource.RESIZE,
        usage,
        {},
        ("p1",),
        1,
        base_version=7,
        is_intent=True,
    )
    known = replace(ledger_of(terms), reservations={"uid-a": intent})
    passed = run(terms, gated("a"), ledger=known)
    assert names(passed.released) == ["a"]
    assert passed.ledger is not None
    assert str(passed.ledger.reservations["uid-a"].charges["p1"]["requests.cpu"]) == "3"
    assert passed.ledger.reservations["uid-a"].base_version == 7


def test_what_is_promised_to_a_pod_is_there_for_it_behind_one_that_asks_for_the_same() -> None:
    terms = terms_of(a_quota("p1", hard={"requests.cpu": "4"}), rules=BEST)
    known = ledger_of(terms, p1={"requests.cpu": "3"})
    one = parse_resource_list({"requests.cpu": "1"}, field="")
    account = replace(
        known.accounts["p1"], used_elsewhere=one, unheld=one, promised={"uid-owner": one}
    )
    known = replace(known, accounts={"p1": account})
    passed = run(terms, gated("first", age=9), gated("owner", age=1), ledger=known)
    assert names(passed.released) == ["owner"]
    assert reasons(passed) == {"first": (PendingReason.QUOTA_EXCEEDED, 1, "")}


# -- who waits, and why --------------------------------------------------------------------


def test_a_pod_that_does_not_fit_holds_all_behind_it_in_its_quota() -> None:
    terms = terms_of(a_quota("p1"))
    pods = [gated("large", "2", age=9), gated("a", "500m", age=8), gated("b", "1", age=7)]
    passed = run(terms, *pods, ledger=ledger_of(terms, p1={"requests.cpu": "1"}))
    assert passed.released == ()
    assert reasons(passed) == {
        "large": (PendingReason.QUOTA_EXCEEDED, 1, ""),
        "a": (PendingReason.BEHIND, 2, "large"),
        "b": (PendingReason.BEHIND, 3, "large"),
    }
    assert [one.message for one in passed.pending.values()] == [
        (
            "exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=1,"
            " limited: requests.cpu=2"
        ),
        "waits behind pod large, which needs quota p1",
        "waits behind pod large, which needs quota p1",
    ]
    assert [one.blocking for one in passed.pending.values()] == [{"p1"}, set(), set()]


def test_a_pod_behind_another_blocks_what_it_fails_itself() -> None:
    terms = terms_of(a_quota("p1"), a_quota("p2", uid="u2", hard={"requests.memory": "2Gi"}))
    used = {"p1": {"requests.cpu": "1"}, "p2": {"requests.memory": "1Gi"}}
    first = gated("first", age=2, requests={"cpu": "2", "memory": "1Gi"})
    behind = gated("behind", age=1, requests={"cpu": "1", "memory": "2Gi"})
    passed = run(terms, first, behind, ledger=ledger_of(terms, **used))
    assert [(one.reason, one.quota, one.blocking) for one in passed.pending.values()] == [
        (PendingReason.QUOTA_EXCEEDED, "p1", frozenset({"p1"})),
        (PendingReason.BEHIND, "p1", frozenset({"p2"})),
    ]


def test_numbers_are_those_after_the_pass() -> None:
    passed = run(terms_of(a_quota("p1")), *many(4))
    last = passed.pending["uid-p4"]
    assert len(last.denials) == 1
    assert last.message == (
        "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2,"
        " limited: requests.cpu=2; waits behind pod p3, which needs quota p1"
    )


CPU_AND_MEMORY = {"cpu": "3", "memory": "2"}


def two_quotas() -> QueueCriteria:
    return terms_of(
        a_quota("big", uid="1", hard={"requests.cpu": "4"}),
        a_quota("own", uid="2", hard={"requests.cpu": "3", "requests.memory": "2"}),
    )


BOTH_EXCEEDED = (
    "exceeded quota: big, requested: requests.cpu=3, used: requests.cpu=2, limited: requests.cpu=4;"
    " exceeded quota: own, requested: requests.cpu=3,requests.memory=2,"
    " used: requests.cpu=2,requests.memory=1, limited: requests.cpu=3,requests.memory=2"
)
USED_OF_BOTH = {
    "big": {"requests.cpu": "2"},
    "own": {"requests.cpu": "2", "requests.memory": "1"},
}


def test_every_quota_that_it_exceeds_is_named() -> None:
    terms = two_quotas()
    ledger = ledger_of(terms, **USED_OF_BOTH)
    passed = run(terms, gated("a", requests=CPU_AND_MEMORY), ledger=ledger)
    assert passed.pending["uid-a"].message == BOTH_EXCEEDED


def test_the_quota_that_it_is_held_in_comes_first() -> None:
    terms = two_quotas()
    ledger = ledger_of(terms, own={"requests.memory": "2"})
    first = gated("first", age=9, requests={"cpu": "0", "memory": "1"})
    passed = run(terms, first, gated("a", requests={"cpu": "9", "memory": "1"}), ledger=ledger)
    assert passed.pending["uid-a"].message.startswith("exceeded quota: big")
    small = gated("b", requests={"cpu": "4", "memory": "1"})
    assert (
        run(terms, first, small, ledger=ledger).pending["uid-b"].reason is PendingReason.NEVER_FITS
    )
    fits = gated("c", requests={"cpu": "3", "memory": "1"})
    tight = ledger_of(terms, big={"requests.cpu": "2"}, own={"requests.memory": "2"})
    held = run(terms, first, fits, ledger=tight).pending["uid-c"]
    assert (held.reason, held.quota) == (PendingReason.BEHIND, "own")
    assert [one.quota for one in held.denials] == ["own", "big"]


def test_which_of_several_quotas_can_never_have_it_is_named() -> None:
    terms = two_quotas()
    ledger = ledger_of(terms, **USED_OF_BOTH)
    passed = run(terms, gated("a", requests={"cpu": "4", "memory": "0"}), ledger=ledger)
    assert passed.pending["uid-a"].message == (
        "exceeded quota: own, requested: requests.cpu=4, used: requests.cpu=2,"
        " limited: requests.cpu=3; exceeded quota: big, requested: requests.cpu=4,"
        " used: requests.cpu=2, limited: requests.cpu=4;"
        " the pod asks for more than the limit of quota own and can never fit"
    )


def test_numbers_stand_beside_a_rule_and_gates_of_others() -> None:
    terms = two_quotas()
    ledger = ledger_of(terms, **USED_OF_BOTH)
    held = run(
        terms, gated("a", "3", "example.com/x", requests=CPU_AND_MEMORY), ledger=ledger
    ).pending
    others = "waits for other scheduling gates first: example.com/x"
    assert held["uid-a"].message == f"{BOTH_EXCEEDED}; {others}"
    held = run(terms, gated("a", requests={"cpu": "3"}), ledger=ledger).pending
    assert held["uid-a"].reason is PendingReason.MUST_SPECIFY
    assert held["uid-a"].message == (
        "exceeded quota: big, requested: requests.cpu=3, used: requests.cpu=2,"
        " limited: requests.cpu=4; exceeded quota: own, requested: requests.cpu=3,"
        " used: requests.cpu=2, limited: requests.cpu=3;"
        " failed quota: own: must specify requests.memory for: main"
    )
    needed = LimitedResource("pods", match_contains=("limits.cpu",))
    rules = QueuePolicy(coverage=CoverageRules(limited=(needed,)))
    limited = gated("a", limits={"cpu": "3"}, requests=CPU_AND_MEMORY)
    held = run(replace(terms, rules=rules), limited, ledger=ledger).pending
    assert held["uid-a"].message == f"{BOTH_EXCEEDED}; insufficient quota to consume: limits.cpu"


def test_of_very_many_quotas_the_last_are_only_counted() -> None:
    quotas = [
        a_quota(f"q{number:02}", uid=str(number), hard={"requests.cpu": "1"})
        for number in range(50)
    ]
    passed = run(terms_of(*quotas), gated("a", "2", "example.com/x"))
    message = passed.pending["uid-a"].message
    assert len(message) < 1500
    named = message.count("exceeded quota: ")
    assert 5 < named < 50
    assert f"; and {50 - named} more quotas are exceeded; " in message
    assert message.endswith("can never fit")


def test_a_pod_in_other_quotas_is_not_held() -> None:
    gold = an_expression("PriorityClass", "In", "gold")
    rest = an_expression("PriorityClass", "NotIn", "gold")
    terms = terms_of(
        a_quota("gold", uid="1", hard={"requests.cpu": "2"}, expressions=[gold]),
        a_quota("rest", uid="2", hard={"requests.cpu": "2"}, expressions=[rest]),
    )
    pods = [
        gated("large", "2", age=9, priorityClassName="gold"),
        gated("small", "1", age=8, priorityClassName="gold"),
        gated("other", "1", age=7),
    ]
    passed = run(terms, *pods, ledger=ledger_of(terms, gold={"requests.cpu": "1"}))
    assert names(passed.released) == ["other"]
    assert passed.pending["uid-small"].quota == "gold"


def test_a_held_pod_holds_those_behind_it_in_the_quotas_that_it_fails_itself() -> None:
    gold = an_expression("PriorityClass", "In", "gold")
    terms = terms_of(
        a_quota("all", uid="1", hard={"requests.cpu": "4"}),
        a_quota("gold", uid="2", hard={"requests.memory": "2"}, expressions=[gold]),
    )
    requests = {"cpu": "1", "memory": "2"}
    small = {"cpu": "0", "memory": "1"}
    pods = [
        gated("first", "4", age=9),
        gated("both", age=8, priorityClassName="gold", requests=requests),
        gated("behind", age=7, priorityClassName="gold", requests=small),
    ]
    used = ledger_of(terms, all={"requests.cpu": "1"}, gold={"requests.memory": "1"})
    assert reasons(run(terms, *pods, ledger=used)) == {
        "first": (PendingReason.QUOTA_EXCEEDED, 1, ""),
        "both": (PendingReason.BEHIND, 2, "first"),
        "behind": (PendingReason.BEHIND, 3, "both"),
    }


@pytest.mark.parametrize("order", QueueingStrategy)
def test_a_pod_that_takes_nothing_of_what_a_quota_limits_does_not_wait_for_it(
    order: QueueingStrategy,
) -> None:
    rules = QueuePolicy(order=order, max_overtakes=0, must_specify=False)
    terms = terms_of(
        a_quota("cpu", uid="1", hard={"requests.cpu": "4"}),
        a_quota("memory", uid="2", hard={"requests.memory": "4"}),
        rules=rules,
    )
    pods = [
        gated("large", age=9, requests={"cpu": "1", "memory": "2"}),
        gated("none", age=8, requests={"cpu": "1", "memory": "0"}),
        gated("silent", age=7, requests={"cpu": "1"}),
        gated("some", age=6, requests={"cpu": "1", "memory": "1"}),
    ]
    passed = run(terms, *pods, ledger=ledger_of(terms, memory={"requests.memory": "3"}))
    assert names(passed.released) == ["none", "silent"]
    assert reasons(passed) == {
        "large": (PendingReason.QUOTA_EXCEEDED, 1, ""),
        "some": (PendingReason.BEHIND, 2, "large"),
    }
    assert passed.overtaken == {}


def test_a_pod_that_takes_nothing_that_is_limited_needs_no_reservation() -> None:
    terms = terms_of(a_quota("p1"), rules=QueuePolicy(must_specify=False))
    passed = run(terms, gated("web", requests={"memory": "1Gi"}))
    assert (names(passed.free), names(passed.releasable)) == (["web"], ["web"])
    assert passed.released == ()


def test_a_pod_that_can_never_fit_holds_no_other() -> None:
    passed = run(terms_of(a_quota("p1")), gated("huge", "3", age=9), gated("a"), gated("b"))
    assert names(passed.released) == ["a", "b"]
    assert reasons(passed) == {"huge": (PendingReason.NEVER_FITS, 0, "")}
    assert passed.pending["uid-huge"].message == (
        "exceeded quota: p1, requested: requests.cpu=3, used: requests.cpu=2,"
        " limited: requests.cpu=2; the pod asks for more than the limit of quota p1 and can never"
        " fit"
    )


def test_a_pod_with_gates_of_others_waits_for_them_and_holds_no_other() -> None:
    passed = run(terms_of(a_quota("p1")), gated("a", "2", "example.com/x", age=9), gated("b"))
    assert names(passed.released) == ["b"]
    assert reasons(passed) == {"a": (PendingReason.OTHER_GATES, 0, "")}
    assert passed.pending["uid-a"].message == (
        "exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=1,"
        " limited: requests.cpu=2; waits for other scheduling gates first: example.com/x"
    )


def test_one_that_fits_says_only_for_which_gates_it_waits() -> None:
    passed = run(terms_of(a_quota("p1")), gated("a", "2", "example.com/x"))
    assert (
        passed.pending["uid-a"].message == "waits for other scheduling gates first: example.com/x"
    )


def test_gates_of_others_do_not_keep_ours_on_a_pod_that_no_quota_concerns() -> None:
    passed = run(terms_of(), gated("a", "2", "example.com/x"))
    assert names(passed.free) == ["a"]


def test_a_pod_that_needs_a_quota_that_is_not_there_waits() -> None:
    limited = LimitedResource("pods", match_contains=("requests.memory",))
    rules = QueuePolicy(coverage=CoverageRules(limited=(limited,)))
    terms = terms_of(a_quota("p1"), rules=rules)
    passed = run(terms, gated("a", requests={"cpu": "1", "memory": "1"}), gated("b"))
    assert names(passed.released) == ["b"]
    assert reasons(passed) == {"a": (PendingReason.NOT_COVERED, 0, "")}
    assert passed.pending["uid-a"].message == "insufficient quota to consume: requests.memory"


MANY = {f"example.com/r{number:02}": "1" for number in range(40)}


@pytest.mark.parametrize("read", [Pod.from_object, compact_pod])
@pytest.mark.parametrize(
    ("part", "waits"), [("example.com/r39", True), ("requests.cpu", False), ("hugepages", True)]
)
def test_a_pod_of_more_names_than_are_kept_never_fits_where_one_may_need_a_quota(
    part: str, waits: bool, read: Callable[[Object], Pod]
) -> None:
    limited = LimitedResource("pods", match_contains=(part,))
    rules = QueuePolicy(coverage=CoverageRules(limited=(limited,)))
    covering = a_quota("p1", hard={"requests.cpu": "4", "requests.example.com/r39": "1"})
    terms = terms_of(covering, rules=rules)
    pod = read(gated("a", requests={"cpu": "1", **MANY}, limits=MANY))
    queued = to_queued_pod(pod, GATE, since=1, terms=terms)
    passed = run_cycle(ledger_of(terms), [queued], rules, room=1000)
    assert names(passed.released) == ([] if waits else ["a"])
    if waits:
        assert reasons(passed) == {"a": (PendingReason.NEVER_FITS, 0, "")}
        assert passed.pending["uid-a"].message == (
            "the pod can never fit; it names more than 32 resources, and some of them may need a"
            " quota"
        )


def test_a_class_that_needs_a_quota_waits_until_there_is_one() -> None:
    gold = ScopeExpression("PriorityClass", "In", ("gold",))
    rules = QueuePolicy(coverage=CoverageRules(required=(gold,)))
    pod = gated("a", priorityClassName="gold")
    assert (
        reasons(run(terms_of(a_quota("p1"), rules=rules), pod))["a"][0] is PendingReason.NOT_COVERED
    )
    covering = a_quota("p2", expressions=[an_expression("PriorityClass", "In", "gold")])
    assert names(run(terms_of(covering, rules=rules), pod).released) == ["a"]


def test_a_pod_that_does_not_say_what_it_takes_waits_where_it_has_to() -> None:
    pod = gated("a", requests={"memory": "1"})
    passed = run(terms_of(a_quota("p1")), pod)
    assert passed.pending["uid-a"].reason is PendingReason.MUST_SPECIFY
    assert (
        passed.pending["uid-a"].message == "failed quota: p1: must specify requests.cpu for: main"
    )
    free = QueuePolicy(must_specify=False)
    assert names(run(terms_of(a_quota("p1"), rules=free), pod).releasable) == ["a"]


@pytest.mark.parametrize("scopes", [["NotBestEffort"], []])
def test_a_pod_of_a_forged_class_waits_whether_a_quota_selects_it_or_not(scopes: list[str]) -> None:
    pod = gated("a", status={"qosClass": "BestEffort"})
    passed = run(terms_of(a_quota("p1", scopes=scopes)), pod, gated("b"))
    assert names(passed.released) == ["b"]
    assert reasons(passed) == {"a": (PendingReason.FORGED_QOS_CLASS, 0, "")}
    assert passed.pending["uid-a"].message == (
        "status.qosClass: BestEffort is not what the pod's resources make it: Burstable"
    )


def test_quotas_that_cannot_be_read_or_evaluated_hold_every_pod() -> None:
    passed = run(terms_of(a_quota("p1"), unreadable=("quota p2 cannot be read",)), gated("a"))
    assert passed.pending["uid-a"].message == "quota p2 cannot be read"
    odd = a_quota("p1", expressions=[an_expression("PriorityClass", "Like", "x")])
    assert reasons(run(terms_of(odd), gated("a")))["a"][0] is PendingReason.NOT_COUNTED


def test_without_a_ledger_nothing_is_reserved() -> None:
    waiting = line_of(terms_of(a_quota("p1")), gated("a"))
    assert reasons(run_cycle(None, waiting, STRICT, room=9))["a"][0] is PendingReason.NOT_COUNTED


def test_a_barrier_concerns_binds_and_holds_no_release_up() -> None:
    terms = terms_of(a_quota("p1"))
    raised = replace(ledger_of(terms), pods_barrier=8)
    assert names(run(terms, gated("a"), ledger=raised).released) == ["a"]


def test_a_full_ledger_keeps_the_order() -> None:
    passed = run(terms_of(a_quota("p1", hard={"requests.cpu": "9"})), *many(4), room=2)
    assert names(passed.released) == ["p1", "p2"]
    assert reasons(passed)["p3"] == (PendingReason.LEDGER_FULL, 1, "")


@pytest.mark.parametrize(
    ("fields", "stands"),
    [
        ({}, True),
        ({"node": "node-1"}, False),
        ({"schedulingGates": [{"name": "example.com/x"}]}, False),
        ({"schedulingGates": None}, False),
    ],
)
def test_only_pods_without_a_node_behind_our_gate_stand_in_the_line(
    fields: Mapping[str, object], stands: bool
) -> None:
    assert is_queued(Pod.from_object(gated("a", **fields)), GATE) is stands  # type: ignore[arg-type]


def test_a_pod_that_is_being_deleted_stands_in_no_line() -> None:
    pod = gated("a")
    pod["metadata"] = {"name": "a", "deletionTimestamp": "2026-05-04T12:00:00Z"}
    assert not is_queued(Pod.from_object(pod), GATE)


# -- letting others pass -------------------------------------------------------------------


def crowd(rules: QueuePolicy, used: str = "0", **given: object) -> CycleResult:
    terms = terms_of(a_quota("p1", hard={"requests.cpu": "4"}), rules=rules)
    pods = [gated("large", "4", age=99), *many(6)]
    return run(terms, *pods, ledger=ledger_of(terms, p1={"requests.cpu": used}), **given)


def test_others_pass_a_pod_that_does_not_fit_and_are_counted() -> None:
    passed = crowd(BEST, "1")
    assert names(passed.released) == ["p1", "p2", "p3"]
    assert passed.overtaken["uid-large"] == 3
    assert passed.pending["uid-large"].position == 1


def test_no_more_than_may_pass_it_then_it_holds_the_others() -> None:
    passed = crowd(replace(BEST, max_overtakes=2), "1")
    assert names(passed.released) == ["p1", "p2"]
    assert passed.pending["uid-p3"].blocked_by == "large"
    assert passed.pending["uid-large"].blocking == {"p1"}


def test_those_that_passed_it_before_count() -> None:
    rules = replace(BEST, max_overtakes=5)
    passed = crowd(rules, "1", history={"uid-large": WaitHistory(overtaken=4)})
    assert names(passed.released) == ["p1"]
    assert passed.overtaken["uid-large"] == 5
    again = crowd(rules, "2", history={"uid-large": WaitHistory(overtaken=5)})
    assert again.released == ()


def test_one_that_has_waited_too_long_holds_the_others() -> None:
    passed = crowd(BEST, "1", history={"uid-large": WaitHistory(seconds=300.0)})
    assert passed.released == ()
    assert passed.pending["uid-p1"].blocked_by == "large"


def test_a_held_pod_keeps_its_count() -> None:
    history = {"uid-large": WaitHistory(seconds=300.0), "uid-p1": WaitHistory(overtaken=7)}
    assert crowd(BEST, "1", history=history).overtaken["uid-p1"] == 7


# -- laws ----------------------------------------------------------------------------------

QUOTAS = (
    a_quota("all", uid="1", hard={"requests.cpu": "6", "requests.memory": "8"}),
    a_quota(
        "gold",
        uid="2",
        hard={"requests.cpu": "4"},
        expressions=[an_expression("PriorityClass", "In", "gold")],
    ),
    a_quota("deadline", uid="3", hard={"requests.memory": "5"}, scopes=["Terminating"]),
)


@st.composite
def waiting_pods(draw: st.DrawFn) -> list[Object]:
    pods: list[Object] = []
    for number in range(draw(st.integers(0, 12))):
        requests = {
            "cpu": str(draw(st.integers(0, 7))),
            "memory": str(draw(st.integers(0, 6))),
        }
        fields: Object = {"priority": draw(st.integers(0, 2))}
        if draw(st.booleans()):
            fields["priorityClassName"] = "gold"
        if draw(st.booleans()):
            fields["activeDeadlineSeconds"] = 9
        others = ["example.com/x"] if draw(st.integers(0, 9)) == 0 else []
        containers = [a_container(requests=requests)]
        pods.append(
            gated(f"p{number}", "0", *others, age=draw(st.integers(0, 3)), requests=None, **fields)
        )
        spec = pods[-1]["spec"]
        assert isinstance(spec, dict)
        spec["containers"] = containers
    return pods


@st.composite
def ledgers(draw: st.DrawFn, terms: QueueCriteria) -> Ledger:
    used = {
        one.name: {key: str(draw(st.integers(0, 7))) for key in one.hard}
        for one in terms.quotas.quotas
    }
    return ledger_of(terms, **used)


RULES = st.builds(
    QueuePolicy,
    order=st.sampled_from(QueueingStrategy),
    max_overtakes=st.integers(0, 3),
    max_wait_seconds=st.sampled_from([0.0, 10.0]),
)


@given(pods=waiting_pods(), rules=RULES, data=st.data())
def test_what_is_released_fits_in_the_order_of_the_line(
    pods: list[Object], rules: QueuePolicy, data: st.DataObject
) -> None:
    terms = terms_of(*QUOTAS, rules=rules)
    before = data.draw(ledgers(terms))
    history = {f"uid-p{number}": WaitHistory(number % 3, 5.0 * number) for number in range(12)}
    line = line_of(terms, *pods)
    passed = run_cycle(before, line, rules, room=data.draw(st.integers(0, 12)), history=history)
    assert passed.ledger is not None
    # every pod has one outcome, and the claims, admitted one by one, give the same ledger
    outcomes = [*(one.uid for one in passed.releasable), *passed.pending]
    assert sorted(outcomes) == sorted(one.uid for one in line)
    running = before
    for waiter in passed.released:
        assert waiter.claim is not None
        running, verdict = admit(running, waiter.claim)
        assert isinstance(verdict, Admitted)
    assert running == passed.ledger
    for account in passed.ledger.accounts.values():
        for name, hard in account.hard.items():
            reserved = account.reserved.get(name)
            assert not reserved or account.used[name] + reserved <= hard
    assert [one for one in line if one in passed.released] == list(passed.released)
    _check_waiting(passed, line, rules, history)


def _check_waiting(
    passed: CycleResult,
    line: list[QueuedPod],
    rules: QueuePolicy,
    history: Mapping[str, WaitHistory],
) -> None:
    assert passed.ledger is not None
    for index, waiter in enumerate(line):
        held = passed.pending.get(waiter.uid)
        if held is None or held.reason is not PendingReason.QUOTA_EXCEEDED:
            continue
        assert waiter.claim is not None
        failing = {one.quota for one in exceeded_quotas(passed.ledger, waiter.claim)}
        assert failing, "it fits and waits"
        passing = [
            one for one in line[index + 1 :] if one in passed.released and held.quota in one.quotas
        ]
        waited = history.get(waiter.uid, WaitHistory())
        is_starved = waited.seconds >= rules.max_wait_seconds
        if rules.order is QueueingStrategy.STRICT or is_starved:
            assert not passing
        assert len(passing) <= max(0, rules.max_overtakes - waited.overtaken)


@given(pods=waiting_pods(), data=st.data())
def test_a_pod_exceeds_some_quota_exactly_where_it_is_refused(
    pods: list[Object], data: st.DataObject
) -> None:
    terms = terms_of(*QUOTAS)
    running = data.draw(ledgers(terms))
    for waiter in line_of(terms, *pods):
        if waiter.claim is None:
            continue
        found = exceeded_quotas(running, waiter.claim)
        running, verdict = admit(running, waiter.claim)
        if isinstance(verdict, Denied):
            assert found[0] == verdict.denial
        else:
            assert found == ()


@given(pods=waiting_pods(), data=st.data())
def test_a_second_pass_over_what_the_first_wrote_changes_nothing(
    pods: list[Object], data: st.DataObject
) -> None:
    terms = terms_of(*QUOTAS)
    first = run(terms, *pods, ledger=data.draw(ledgers(terms)))
    second = run(terms, *pods, ledger=first.ledger)
    assert second.ledger == first.ledger
    assert second.released == ()
    assert {one.uid for one in second.releasable} == {one.uid for one in first.releasable}
    assert second.pending.keys() == first.pending.keys()


@pytest.mark.parametrize("limited", [("limits.memory",), ("requests.cpu",), ("pods",), ()])
def test_a_pod_with_an_amount_that_cannot_be_counted_never_fits_and_says_which(
    limited: Sequence[str],
) -> None:
    odd = gated("odd", limits={"memory": "1e20000"})
    terms = terms_of(*[a_quota("p1", hard={name: "4"}) for name in limited])
    waiter = to_queued_pod(Pod.from_stored(odd), GATE, since=1, terms=terms)
    assert waiter.blocker is not None
    assert waiter.blocker.reason is PendingReason.NEVER_FITS
    assert waiter.blocker.detail == (
        "spec.containers[0].resources.limits.memory is too large to be counted"
    )
