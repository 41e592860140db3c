"""Why a pod is pending: every cause, mixtures of them, their numbers and what would unblock it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_quota
from tests.quota.explaining import (
    GATE,
    NOON,
    OTHER,
    actions,
    bound,
    condition,
    kinds,
    namespace,
    pod,
    time,
    why,
)
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.coverage import CoverageRules
from webhook.quota.explaining.facts import Health, NamespaceFacts, Part
from webhook.quota.explaining.queue_position import queue_state, waits_for_pools
from webhook.quota.explaining.values import ConsumerState, Shortage
from webhook.quota.objects.model import ScopeExpression
from webhook.quota.queue import release_order
from webhook.quota.queue.queued_pods import PendingReason, QueueingStrategy, QueuePolicy

FULL = {"p1": {"requests.cpu": "2"}}
DOWN = Part(Health.DOWN, "no controller leads")
SILENT = Part(Health.DOWN, "bind.deferredquota.io does not answer")
CLASSES = QueuePolicy(
    coverage=CoverageRules(required=(ScopeExpression("PriorityClass", "Exists"),))
)
TRIED = condition("PodScheduled", "False", "Unschedulable", "no nodes available")
RESERVED = condition("deferredquota.io/QuotaReserved", "True", "Reserved", age=50)
STALE = condition("deferredquota.io/QuotaReserved", "False", "QuotaExceeded", "exceeded quota: p1")
ENDING = {"deletionTimestamp": time(1), "deletionGracePeriodSeconds": 30}

CASES: dict[str, tuple[Callable[[], NamespaceFacts], list[str], list[str]]] = {
    "quota": (
        lambda: namespace(pod("x"), used=FULL),
        ["quota"],
        ["free-quota", "raise-quota"],
    ),
    "quota with a part free": (
        lambda: namespace(pod("x", "2"), used={"p1": {"requests.cpu": "1"}}),
        ["quota"],
        ["free-quota", "raise-quota", "shrink-pod"],
    ),
    "every quota that refuses": (
        lambda: namespace(
            pod("x"), a_quota("p1"), a_quota("p2"), used={**FULL, "p2": {"requests.cpu": "2"}}
        ),
        ["quota", "quota"],
        ["free-quota", "raise-quota", "free-quota", "raise-quota"],
    ),
    "cluster quota": (
        lambda: namespace(pod("x"), a_quota("cdq/both"), used={"cdq/both": {"requests.cpu": "2"}}),
        ["cluster-quota"],
        ["free-quota", "raise-quota"],
    ),
    "behind, and would fit itself": (
        lambda: namespace(pod("first", "2", age=9), pod("x"), used={"p1": {"requests.cpu": "1"}}),
        ["behind"],
        ["wait", "free-quota"],
    ),
    "behind, and does not fit": (
        lambda: namespace(pod("first", age=9), pod("x"), used=FULL),
        ["behind", "quota"],
        ["wait", "free-quota", "free-quota", "raise-quota"],
    ),
    "behind one without a gate, where such pods have a place": (
        lambda: namespace(
            pod("first", "2", gates=(), age=9),
            pod("x"),
            used={"p1": {"requests.cpu": "1"}},
            room_seconds=10,
        ),
        ["behind"],
        ["wait", "free-quota"],
    ),
    "one without a gate has no place any more": (
        lambda: namespace(
            pod("first", "2", gates=(), age=11),
            pod("x"),
            used={"p1": {"requests.cpu": "1"}},
            room_seconds=10,
        ),
        [],
        ["wait"],
    ),
    "behind one that no node has taken for a short time": (
        lambda: namespace(
            pod("first", "2", gates=(), age=99, conditions=[TRIED]),
            pod("x"),
            used={"p1": {"requests.cpu": "1"}},
            room_seconds=10,
        ),
        ["behind"],
        ["wait", "free-quota"],
    ),
    "released pods that may preempt have no node": (
        lambda: namespace(pod("first", "2", gates=(), age=9, priority=9), pod("x", priority=9)),
        ["preemptors-unbound"],
        ["wait", "delete-pod", "change-class"],
    ),
    "one without a gate has no place elsewhere": (
        lambda: namespace(
            pod("first", "2", gates=(), age=9), pod("x"), used={"p1": {"requests.cpu": "1"}}
        ),
        [],
        ["wait"],
    ),
    "never fits": (
        lambda: namespace(pod("x", "3")),
        ["never-fits"],
        ["shrink-pod", "raise-quota"],
    ),
    "never fits one, exceeds another": (
        lambda: namespace(
            pod("x", "3"),
            a_quota("p1"),
            a_quota("p2", hard={"requests.cpu": "4"}),
            used={"p2": {"requests.cpu": "2"}},
        ),
        ["never-fits", "quota"],
        ["shrink-pod", "raise-quota", "free-quota", "raise-quota", "shrink-pod"],
    ),
    "forged QoS class": (
        lambda: namespace(pod("x", status={"qosClass": "Guaranteed"})),
        ["never-fits"],
        ["delete-pod"],
    ),
    "must specify": (
        lambda: namespace(pod("x", ""), used=FULL),
        ["rule-must-specify"],
        ["set-resources"],
    ),
    "priority class": (
        lambda: namespace(pod("x", priorityClassName="gold"), rules=CLASSES),
        ["rule-priority-class"],
        ["add-quota", "change-class"],
    ),
    "other gate": (
        lambda: namespace(pod("x", gates=(GATE, OTHER))),
        ["other-gate"],
        ["remove-gate"],
    ),
    "other gate alone": (
        lambda: namespace(pod("x", gates=(OTHER,))),
        ["other-gate"],
        ["remove-gate"],
    ),
    "other gate, rule and quota": (
        lambda: namespace(
            pod("x", priorityClassName="gold", gates=(GATE, OTHER)), rules=CLASSES, used=FULL
        ),
        ["other-gate", "rule-priority-class", "quota"],
        ["remove-gate", "add-quota", "change-class", "free-quota", "raise-quota"],
    ),
    "other gate and never fits": (
        lambda: namespace(pod("x", "3", gates=(GATE, OTHER))),
        ["other-gate", "never-fits"],
        ["remove-gate", "shrink-pod", "raise-quota"],
    ),
    "not counted": (
        lambda: namespace(pod("x"), ledger=None, uncounted="usage is being counted for quota: p1"),
        ["ledger-not-ready"],
        ["wait"],
    ),
    "not counted, and no controller": (
        lambda: namespace(pod("x"), ledger=None, uncounted="there is no ledger", controller=DOWN),
        ["ledger-not-ready"],
        ["start-controller"],
    ),
    "never fits, and not counted": (
        lambda: namespace(pod("x", "3"), ledger=None, uncounted="there is no ledger"),
        ["never-fits", "ledger-not-ready"],
        ["delete-pod", "wait"],
    ),
    "fits, and no controller": (
        lambda: namespace(pod("x"), controller=DOWN),
        ["ledger-not-ready"],
        ["start-controller"],
    ),
    "full, and no controller": (
        lambda: namespace(pod("x"), used=FULL, controller=DOWN),
        ["ledger-not-ready", "quota"],
        ["start-controller", "free-quota", "raise-quota"],
    ),
    "ungated, and only the stored ledger is full": (
        lambda: replace(
            namespace(pod("x", gates=()), controller=DOWN),
            stored=namespace(used=FULL).ledger,
        ),
        ["ledger-not-ready"],
        ["start-controller"],
    ),
    "ungated, and no controller": (
        lambda: namespace(pod("x", gates=()), controller=DOWN),
        [],
        ["wait"],
    ),
    "no room in the ledger": (
        lambda: namespace(pod("x"), max_reservations=0),
        ["ledger-not-ready"],
        ["wait"],
    ),
    "no webhook": (
        lambda: namespace(pod("x", gates=()), webhook=SILENT),
        ["webhook-down"],
        ["start-webhook"],
    ),
    "full, no controller, no webhook": (
        lambda: namespace(pod("x"), used=FULL, controller=DOWN, webhook=SILENT),
        ["webhook-down", "ledger-not-ready", "quota"],
        ["start-webhook", "start-controller", "free-quota", "raise-quota"],
    ),
    "never fits, no ledger, no controller, no webhook": (
        lambda: namespace(
            pod("x", "3"), ledger=None, uncounted="no ledger", controller=DOWN, webhook=SILENT
        ),
        ["webhook-down", "ledger-not-ready", "never-fits"],
        ["start-webhook", "start-controller", "delete-pod"],
    ),
    "no scheduler": (
        lambda: namespace(pod("x", gates=(), age=31, schedulerName="nobody")),
        ["scheduler-absent"],
        ["start-scheduler", "change-scheduler"],
    ),
    "no scheduler since its release": (
        lambda: namespace(pod("x", gates=(), age=900, conditions=[RESERVED])),
        ["scheduler-absent"],
        ["start-scheduler", "change-scheduler"],
    ),
    "no attempt yet": (
        lambda: namespace(pod("x", gates=(), age=29)),
        [],
        ["wait"],
    ),
    "tried, and the quota is full": (
        lambda: namespace(pod("x", gates=(), age=99, conditions=[TRIED]), used=FULL),
        ["quota"],
        ["free-quota", "raise-quota"],
    ),
    "full, and no scheduler": (
        lambda: namespace(pod("x", gates=(), age=99), used=FULL),
        ["quota", "scheduler-absent"],
        ["free-quota", "raise-quota", "start-scheduler", "change-scheduler"],
    ),
    "the condition is old": (
        lambda: namespace(pod("x", conditions=[STALE])),
        [],
        ["wait"],
    ),
    "reserved": (
        lambda: namespace(pod("x"), reserved={"x": "1"}, used={"p1": {"requests.cpu": "1"}}),
        [],
        ["wait"],
    ),
    "terminating": (
        lambda: namespace(pod("x", metadata=ENDING), used=FULL),
        ["terminating"],
        ["wait"],
    ),
    "terminating with a finalizer": (
        lambda: namespace(pod("x", metadata={**ENDING, "finalizers": ["example.com/keep"]})),
        ["terminating"],
        ["remove-finalizer"],
    ),
    "terminating on a node": (
        lambda: namespace(bound("x", metadata=ENDING)),
        ["terminating"],
        ["delete-pod"],
    ),
    "runs": (lambda: namespace(bound("x")), ["already-running"], []),
    "has a node": (
        lambda: namespace(bound("x", status={"phase": "Pending"})),
        ["not-ours"],
        ["not-ours"],
    ),
    "its node is gone": (
        lambda: namespace(bound("x", node="node-9")),
        ["not-ours"],
        ["delete-pod"],
    ),
    "refused by its kubelet": (
        lambda: namespace(bound("x", status={"phase": "Failed", "reason": "OutOfcpu"})),
        ["not-ours"],
        ["delete-pod"],
    ),
    "a namespace that is not opted in": (
        lambda: namespace(pod("x", gates=(OTHER,)), is_deferred=False, criteria=None, ledger=None),
        ["other-gate"],
        ["remove-gate"],
    ),
    "our gate in a namespace that has left": (
        lambda: namespace(pod("x"), is_deferred=False, criteria=None, controller=DOWN),
        ["ledger-not-ready"],
        ["start-controller"],
    ),
}


@pytest.mark.parametrize(("there", "causes", "unblocking"), CASES.values(), ids=CASES.keys())
def test_all_causes_that_hold_are_listed_in_their_order(
    there: Callable[[], NamespaceFacts], causes: list[str], unblocking: list[str]
) -> None:
    explained = why(there(), "x")
    assert kinds(explained) == causes
    assert actions(explained) == unblocking
    assert explained.cause == (causes[0] if causes else None)
    assert explained.text.startswith("Pod team-a/x: ")
    assert explained.as_of == NOON


def amounts(one: Shortage) -> dict[str, str]:
    names = ("requested", "used", "reserved", "hard", "missing")
    return {name: str(getattr(one, name)) for name in names}


def test_the_numbers_are_those_of_the_ledger() -> None:
    there = namespace(
        pod("x", "2"),
        pod("promised", gates=(), age=9),
        a_quota("p1", hard={"requests.cpu": "4", "limits.cpu": "1"}),
        used={"p1": {"requests.cpu": "2"}},
        reserved={"promised": "1"},
        rules=QueuePolicy(must_specify=False),
    )
    explained = why(there, "x")
    (shortage,) = explained.causes[0].shortages
    assert shortage.resource == "requests.cpu"
    assert amounts(shortage) == {
        "requested": "2", "used": "3", "reserved": "1", "hard": "4", "missing": "1",
    }  # fmt: skip
    assert explained.causes[0].text == (
        "exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=3,"
        " limited: requests.cpu=4, reserved of it: requests.cpu=1, missing: requests.cpu=1;"
        " place 1 of 1"
    )


def test_all_numbers_of_an_elastic_pool_have_the_names_of_its_resources() -> None:
    there = namespace(
        pod("x", "2"),
        a_quota("cdq/epool.default", hard={"requests.cpu": "4"}),
        used={"cdq/epool.default": {"requests.cpu": "3"}},
    )
    text = why(there, "x").causes[0].text
    assert text.startswith("elastic pool default is used up, requested: cpu=2,")
    assert "missing: cpu=1" in text
    assert "requests.cpu" not in text


def test_the_holder_and_the_place_are_named() -> None:
    crowd = [pod(name, age=9 - number) for number, name in enumerate("abc")]
    explained = why(namespace(*crowd, used=FULL), "c")
    behind, quota = explained.causes
    assert (behind.holder, behind.place, behind.quota) == ("a", 3, "p1")
    assert behind.text == "waits behind pod a, which needs quota p1; place 3 of 3"
    assert quota.place == 3
    free = [str(one.amount) for one in explained.unblock if one.action == "free-quota"]
    assert free == ["1", "3"], "for the first, and for all up to this one"


@pytest.mark.parametrize("name", ["first", "behind", "huge", "held"])
def test_the_condition_and_the_answer_have_the_same_words(name: str) -> None:
    crowd = [pod("first", age=9), pod("behind"), pod("huge", "3"), pod("held", gates=(GATE, OTHER))]
    there = namespace(*crowd, used=FULL)
    assert there.criteria is not None
    (subject,) = [one for one in there.pods if one.pod.name == name]
    status = queue_state(subject, there, there.criteria).status
    assert status is not None
    texts = [part for cause in why(there, name).causes for part in cause.text.split("; ")]
    for sentence in status.message.split("; "):
        assert any(text.startswith(sentence) for text in texts), sentence


def test_a_later_pod_that_fits_is_not_behind_with_best_effort() -> None:
    best = QueuePolicy(order=QueueingStrategy.BEST_EFFORT)
    crowd = [pod("first", "2", age=9), pod("x")]
    used = {"p1": {"requests.cpu": "1"}}
    assert kinds(why(namespace(*crowd, used=used, rules=best), "x")) == []


def test_one_that_has_waited_too_long_blocks_those_behind_it() -> None:
    best = QueuePolicy(order=QueueingStrategy.BEST_EFFORT)
    waits = condition("deferredquota.io/QuotaReserved", "False", "QuotaExceeded", age=400)
    crowd = [pod("first", "2", age=900, conditions=[waits]), pod("x")]
    used = {"p1": {"requests.cpu": "1"}}
    assert kinds(why(namespace(*crowd, used=used, rules=best), "x")) == ["behind"]


def test_pods_of_one_second_stand_as_the_leader_has_them() -> None:
    waits = "deferredquota.io/QuotaReserved"
    crowd = [
        pod(name, conditions=[condition(waits, "False", "QuotaExceeded", f"place {place} of 2")])
        for name, place in (("a", 2), ("b", 1))
    ]
    there = namespace(*crowd, pod("c"), used=FULL)
    places = {name: why(there, name).causes[-1].place for name in "abc"}
    assert places == {"a": 2, "b": 1, "c": 3}


def test_the_pod_that_takes_most_comes_first_with_its_state() -> None:
    there = namespace(
        pod("x", "9"),
        pod("promised", "1", gates=(), age=9),
        bound("small", "1"),
        bound("large", "4"),
        bound("starts", "2", status={"phase": "Pending"}),
        bound("ends", "2", metadata=ENDING),
        bound("lost", "2", node="node-9"),
        bound("over", "5", status={"phase": "Succeeded"}),
        a_quota("p1", hard={"requests.cpu": "12"}),
        used={"p1": {"requests.cpu": "11"}},
        reserved={"promised": "1"},
    )
    found = [(one.pod, one.state.value) for one in why(there, "x").consumers]
    assert found == [
        ("large", "running"),
        ("ends", "terminating"),
        ("lost", "node-gone"),
        ("starts", "starting"),
        ("promised", "reserved"),
        ("small", "running"),
    ]


def test_of_many_the_largest_are_named_and_those_that_hold_without_running() -> None:
    many = [bound(f"p{number:02}", "2") for number in range(30)]
    there = namespace(
        pod("x"), *many, bound("lost", "1", node="node-9"), used={"p1": {"requests.cpu": "61"}}
    )
    found = [one.pod for one in why(there, "x").consumers]
    assert found == [*(f"p{number:02}" for number in range(10)), "lost"]


def test_other_namespaces_hear_of_a_shared_quota() -> None:
    ledger = namespace(a_quota("cdq/both"), used={"cdq/both": {"requests.cpu": "2"}}).ledger
    assert ledger is not None
    held = ledger.accounts["cdq/both"].used
    there = namespace(
        pod("x"), a_quota("cdq/both"), ledger=ledger, holdings={"cdq/both": {"team-b": held}}
    )
    (other,) = why(there, "x").consumers
    assert (other.namespace, other.pod, other.state) == ("team-b", "", ConsumerState.NAMESPACE)


CHARGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a quota": ("1", {}, "; its quota is charged"),
    "nothing that a quota limits": ("", {}, "; no deferred quota is charged for it"),
    "a namespace that is not opted in": (
        "1",
        {"criteria": None, "is_deferred": False},
        "; no deferred quota is charged for it",
    ),
    "labels that may not be read": (
        "1",
        {"criteria": None, "is_deferred": False, "unknown": ("the labels: no right to read",)},
        "",
    ),
}


@pytest.mark.parametrize(("cpu", "facts", "text"), CHARGED.values(), ids=CHARGED)
def test_of_a_pod_that_starts_it_is_said_whether_a_quota_is_charged(
    cpu: str, facts: dict[str, Any], text: str
) -> None:
    there = namespace(bound("x", cpu, status={"phase": "Pending"}), **facts)
    (cause,) = why(there, "x").causes
    assert cause.text == f"the pod has node node-0 and does not run there yet{text}"


def test_without_a_list_of_nodes_no_node_is_gone() -> None:
    there = namespace(pod("x"), bound("lost", "2", node="node-9"), used=FULL, node_names=None)
    assert [one.state.value for one in why(there, "x").consumers] == ["running"]


def test_a_pod_of_a_pool_whose_bind_was_denied_has_its_place() -> None:
    denied = (
        'running Bind plugin "DefaultBinder": admission webhook "bind.deferredquota.io" denied the'
        " request: elastic pool default is used up"
    )
    said = condition("PodScheduled", "False", "SchedulerError", denied)
    there = namespace(
        pod("x", gates=(), conditions=[said]),
        a_quota("cdq/epool.default"),
        used={"cdq/epool.default": {"requests.cpu": "2"}},
    )
    assert why(there, "x").text.endswith("; place 1 of 1")
    assert [list(lacking) for lacking in waits_for_pools(there)] == [["cdq/epool.default"]]


TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "fits": ({}, "it fits; the controller releases it at its next look"),
    "reserved": (
        {"reserved": {"x": "1"}},
        "quota is reserved for it; its gate is removed in a moment",
    ),
    "no quotas deferred": (
        {"is_deferred": False, "criteria": None},
        "its namespace does not defer quotas; the controller removes the gate",
    ),
}


@pytest.mark.parametrize(("facts", "text"), TEXTS.values(), ids=TEXTS.keys())
def test_what_happens_next_is_said_where_nothing_keeps_it(facts: dict[str, Any], text: str) -> None:
    assert why(namespace(pod("x"), **facts), "x").text == f"Pod team-a/x: {text}"


def test_the_schedulers_words_are_a_note_and_a_lost_reservation_is_reported() -> None:
    notes = why(namespace(pod("x", gates=(), conditions=[TRIED])), "x").notes
    assert notes == (
        "last attempt of default-scheduler: Unschedulable: no nodes available",
        "no quota is reserved for it: its next bind may find the quota used",
    )


def test_what_a_container_lacks_is_said_once() -> None:
    explained = why(namespace(pod("x", "")), "x")
    assert explained.causes[0].text == "failed quota: p1: must specify requests.cpu for: main"
    assert explained.unblock[0].text == (
        "create the pod with what is missing in each container, or a LimitRange first"
    )


def test_an_outage_is_named_before_what_follows_from_it() -> None:
    there = namespace(pod("x"), ledger=None, uncounted="there is no ledger", controller=DOWN)
    explained = why(there, "x")
    outage = "no controller leads: no gate is removed; there is no ledger"
    assert explained.text == f"Pod team-a/x: {outage}"
    assert not explained.notes, "nothing is counted"


def test_without_the_nodes_the_schedulers_last_attempt_tells() -> None:
    words = (
        "0/9 nodes are available: 1 Too many pods, 2 node(s) had untolerated taint(s),"
        " 3 Insufficient cpu, 3 node(s) didn't match pod anti-affinity rules. preemption: 0/9 nodes"
        " are available: 9 Preemption is not helpful for scheduling."
    )
    tried = condition("PodScheduled", "False", "Unschedulable", words)
    explained = why(namespace(pod("x", gates=(), conditions=[tried])), "x")
    assert kinds(explained) == ["pod-count", "taint", "node-capacity", "pod-affinity"]
    assert explained.nodes is None
    assert explained.causes[2].text == (
        "of 9 nodes none fitted at the scheduler's last attempt: 3 Insufficient cpu"
    )
    assert {"free-node", "add-toleration", "add-node", "change-affinity"} <= {*actions(explained)}


def test_an_attempt_that_quota_refused_says_nothing_of_nodes() -> None:
    words = "0/3 nodes are available: 3 quota exceeded: p1, requested: cpu=1, used: cpu=2."
    tried = condition("PodScheduled", "False", "Unschedulable", words)
    there = namespace(pod("x", gates=(), conditions=[tried]), used=FULL)
    assert kinds(why(there, "x")) == ["quota"]


ELASTIC = {
    "cdq/epool.default": [
        "free 1 cpu of elastic pool default",
        "raise min of an elastic quota of the pool: cpu by 1",
    ],
    "cdq/eq.team-a.q": [
        "free 1 cpu of elastic quota eq/q",
        "raise max: cpu of elastic quota eq/q by 1, to 3",
    ],
    "cdq/both": [
        "free 1 requests.cpu of quota cdq/both",
        "raise requests.cpu of quota cdq/both by 1, to 3",
    ],
}


@pytest.mark.parametrize(("quota", "texts"), ELASTIC.items(), ids=ELASTIC)
def test_what_frees_an_elastic_quota_is_said_in_its_owners_words(
    quota: str, texts: list[str]
) -> None:
    there = namespace(pod("x"), a_quota(quota), used={quota: {"requests.cpu": "2"}})
    assert [one.text for one in why(there, "x").unblock] == texts


NEVER = {
    "cdq/epool.default": (
        (
            "elastic pool default is used up, requested: cpu=3, used: cpu=0, size: cpu=2;"
            " the pod asks for more than the limit of elastic pool default and can never fit"
        ),
        "raise min of an elastic quota of the pool: cpu by at least 1",
    ),
    "cdq/eq.team-a.q": (
        (
            "exceeded elastic quota: eq/q, requested: cpu=3, used: cpu=0, max: cpu=2;"
            " the pod asks for more than the limit of elastic quota eq/q and can never fit"
        ),
        "raise max: cpu of elastic quota eq/q by at least 1, to 3",
    ),
}


@pytest.mark.parametrize(("quota", "texts"), NEVER.items(), ids=NEVER)
def test_so_is_what_an_elastic_quota_never_has(quota: str, texts: tuple[str, str]) -> None:
    explained = why(namespace(pod("x", "3"), a_quota(quota)), "x")
    smaller, larger = (one.text for one in explained.unblock)
    assert smaller == "create the pod with at most 2 cpu"
    assert (explained.causes[0].text, larger) == texts


def test_so_is_what_pods_stand_behind() -> None:
    quota = "cdq/epool.default"
    crowd = [pod("a", age=9), pod("b")]
    explained = why(namespace(*crowd, a_quota(quota), used={quota: {"requests.cpu": "2"}}), "b")
    behind, _ = explained.causes
    assert behind.text == "waits behind pod a, which needs elastic pool default; place 2 of 2"
    assert "free 1 cpu of elastic pool default for pod a" in [one.text for one in explained.unblock]


def test_a_released_pod_lacks_nothing_whatever_was_promised_since() -> None:
    there = namespace(pod("x", "2", gates=()), reserved={"x": "2"})
    assert there.ledger is not None
    two = {"requests.cpu": Quantity.parse("2")}
    account = replace(there.ledger.accounts["p1"], used_elsewhere=two, unheld=two)
    ledger = replace(there.ledger, accounts={"p1": account})
    assert kinds(why(replace(there, ledger=ledger, stored=ledger), "x")) == []


def test_a_pod_for_which_too_many_are_on_their_way_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_order, "MAX_PENDING_RELEASES", 1)
    there = namespace(pod("first", "1", age=9), pod("x"), reserved={"first": "1"})
    (subject,) = [one for one in there.pods if one.pod.name == "x"]
    assert there.criteria is not None
    status = queue_state(subject, there, there.criteria).status
    assert status is not None
    assert status.reason is PendingReason.LEDGER_FULL
