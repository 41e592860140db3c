"""Quotas of namespaces that defer show no deferred resources; all others show everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tests.admission.doors.desk import a_namespace, eventually, new_cluster, opt_in, opt_out
from tests.builders import a_binding, a_pod, a_quota
from tests.cluster.faults import Call, Fault, FlakyClient, in_turn
from tests.controllers.rig import NAMESPACE
from webhook.cluster.api import (
    EVENTS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ForbiddenError,
    Kind,
    Revision,
)
from webhook.cluster.informer import Informer, Timing
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.cluster.selectors import Term
from webhook.controllers.events import EventRecorder
from webhook.controllers.guards import STANDING, Guard
from webhook.controllers.mask import MaskRepair
from webhook.controllers.masking import MaskTiming
from webhook.controllers.opted import Opted
from webhook.quota.names import DEFERRED_KEYS
from webhook.quota.objects import ResourceQuota
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.telemetry.metrics import Metrics

Object = dict[str, object]

_QUICK = Timing(first_pause=0.01, longest_pause=0.05)
_SOON = MaskTiming(
    second_look=0.05, patience=0.05, guard_seconds=0.02, first_retry=0.005, longest_retry=0.05
)
HARD = {"requests.cpu": "2", "pods": "3"}
USED = {"requests.cpu": "1", "pods": "1"}


@dataclass
class Board:
    """A cluster and a running mask repair."""

    cluster: MemoryCluster
    term: list[int]
    keys: list[frozenset[str]]
    exempt: frozenset[str] = frozenset()
    guard: Guard = STANDING
    timing: MaskTiming = _SOON
    api: MemoryClient = field(init=False)
    line: FlakyClient = field(init=False)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.api = MemoryClient(self.cluster)
        self.line = FlakyClient(MemoryClient(self.cluster))
        self.quotas = QuotaCache(self.line, lambda: self.keys[0], timing=_QUICK)
        self.namespaces = NamespaceCache(self.line, timing=_QUICK)
        self.events = EventRecorder(self.api)
        self.repair = MaskRepair(
            self.line,
            Opted(quotas=self.quotas, namespaces=self.namespaces, exempt=lambda: self.exempt),
            guard=lambda: self.guard,
            is_leader=lambda: self.term[0],
            events=self.events,
            metrics=self.metrics,
            timing=self.timing,
        )

    def informers(self) -> list[Informer[ResourceQuota]]:
        found = [self.quotas.informer, self.namespaces.informer]
        return cast("list[Informer[ResourceQuota]]", found)

    def catch_up(self) -> None:
        """Wait until the caches have seen all, and nothing is left to do at once."""
        version = self.cluster.resource_version

        def has_seen_all() -> bool:
            self.cluster.send_bookmarks()
            return all(one.wait_for_version(version, 0.02) for one in self.informers())

        eventually(has_seen_all, "the caches have seen all")
        agenda = self.repair._agenda
        eventually(lambda: not agenda.due() and not agenda._busy, "nothing is left to do")

    def status(self, name: str = "p1", namespace: str = NAMESPACE) -> dict[str, dict[str, str]]:
        stored = self.api.get(RESOURCE_QUOTAS, name, namespace=namespace)
        found = cast("dict[str, dict[str, str]]", stored.get("status", {}))
        return {part: dict(found.get(part, {})) for part in ("hard", "used")}

    def write_status(self, hard: Mapping[str, str], used: Mapping[str, str]) -> None:
        """Write a status as the quota controller does."""
        status = {"status": {"hard": dict(hard), "used": dict(used)}}
        self.api.patch(RESOURCE_QUOTAS, "p1", status, namespace=NAMESPACE, subresource="status")

    def count(self, result: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "deferred_quota_quota_status_repairs_total", {"result": result}
        )
        return value or 0.0


def quota(name: str = "p1", **fields: object) -> Object:
    made = a_quota(name, hard=HARD, **fields)  # type: ignore[arg-type]
    made["status"] = {"hard": dict(HARD), "used": dict(USED)}
    return made


def excluded() -> Object:
    made = quota()
    metadata = {**cast("Object", made["metadata"])}
    return {**made, "metadata": {**metadata, "annotations": {"deferredquota.io/exclude": "true"}}}


@contextmanager
def a_board(
    *objects: tuple[object, Object], mode: str = "deferred", **fields: object
) -> Iterator[Board]:
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace(mode=mode)), *objects])  # type: ignore[list-item]
    fields = {"term": [1], "keys": [DEFERRED_KEYS], **fields}
    board = Board(cluster, **fields)  # type: ignore[arg-type]
    board.repair.start()
    for informer in board.informers():
        informer.start()
    try:
        yield board
    finally:
        board.repair.stop()
        for informer in board.informers():
            informer.stop()


@pytest.fixture
def board() -> Iterator[Board]:
    with a_board((RESOURCE_QUOTAS, quota())) as made:
        eventually(lambda: made.count("masked") == 1, "it is masked")
        yield made


MASKED = {"hard": {"pods": "3"}, "used": {"pods": "1"}}
FULL = {"hard": HARD, "used": USED}


def test_a_status_that_shows_deferred_resources_is_masked(board: Board) -> None:
    assert board.status() == MASKED


def test_a_status_that_is_written_again_is_masked_again(board: Board) -> None:
    board.write_status(HARD, USED)
    eventually(lambda: board.status() == MASKED, "it is masked again")
    assert board.count("masked") == 2


def test_a_masked_status_is_left_alone(board: Board) -> None:
    board.catch_up()
    before = board.cluster.resource_version
    board.repair.recheck()
    board.catch_up()
    assert board.cluster.resource_version == before


def test_a_namespace_that_opts_in_is_masked_at_once() -> None:
    with a_board((RESOURCE_QUOTAS, quota()), mode="") as board:
        board.catch_up()
        assert board.status() == FULL
        opt_in(board.api, NAMESPACE)
        eventually(lambda: board.status() == MASKED, "it is masked")


UNTOUCHED: dict[str, Callable[[], object]] = {
    "a namespace that is not opted in": lambda: a_board((RESOURCE_QUOTAS, quota()), mode=""),
    "an exempt namespace": lambda: a_board(
        (RESOURCE_QUOTAS, quota()), exempt=frozenset({NAMESPACE})
    ),
    "an excluded quota": lambda: a_board((RESOURCE_QUOTAS, excluded())),
    "a standby": lambda: a_board((RESOURCE_QUOTAS, quota()), term=[0]),
}


@pytest.mark.parametrize("made", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_what_is_not_ours_is_not_masked(made: Callable[[], object]) -> None:
    with made() as board:  # type: ignore[attr-defined]
        board.catch_up()
        board.repair.recheck()
        board.catch_up()
        assert board.status() == FULL


def test_a_leadership_that_begins_looks_at_every_quota() -> None:
    with a_board((RESOURCE_QUOTAS, quota()), term=[0]) as board:
        board.catch_up()
        assert board.status() == FULL
        board.term[0] = 7
        eventually(lambda: board.status() == MASKED, "it is masked")


def test_a_write_that_meets_another_is_tried_again_on_what_is_there(board: Board) -> None:
    met: list[Call] = []

    def meet(call: Call) -> None:
        if call.verb == "patch" and not met:
            met.append(call)
            labels = {"metadata": {"labels": {"a": "b"}}}
            board.api.patch(RESOURCE_QUOTAS, "p1", labels, namespace=NAMESPACE)

    board.line.before = meet
    board.write_status(HARD, USED)
    eventually(lambda: board.status() == MASKED, "it is masked again")
    assert board.count("conflict") == 1


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_ANSWER, Fault.THROTTLE])
def test_a_write_that_fails_is_tried_again(board: Board, fault: Fault) -> None:
    board.line.plan = in_turn([fault, fault], verb="patch")
    board.write_status(HARD, USED)
    eventually(lambda: board.status() == MASKED, "it is masked again")
    assert board.count("failed") >= 1


# -- back to the platform ------------------------------------------------------------------


def pods(board: Board) -> None:
    """A pod of 500m that runs, one of 1 cpu that waits, and one that has ended."""
    for name, cpu, status in (
        ("runs", "500m", {}),
        ("waits", "1", {}),
        ("over", "7", {"phase": "Succeeded"}),
    ):
        made = a_pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, status=status)
        board.cluster.load([(PODS, made)])
    board.api.bind(a_binding("runs"))


def test_opting_out_completes_the_status_with_all_pods_that_live(board: Board) -> None:
    pods(board)
    opt_out(board.api, NAMESPACE)
    full = {"hard": HARD, "used": {**USED, "requests.cpu": "1500m"}}
    eventually(lambda: board.status() == full, "the status is complete")
    board.catch_up()
    assert board.count("restored") == 1


def test_a_pod_that_came_between_the_list_and_the_write_is_counted_the_second_time(
    board: Board,
) -> None:
    came: list[Call] = []

    def come(call: Call) -> None:
        if call.verb == "patch" and not came:
            came.append(call)
            late = a_pod(name="late", uid="uid-late", requests={"cpu": "1"})
            board.cluster.load([(PODS, late)])

    board.line.before = come
    pods(board)
    opt_out(board.api, NAMESPACE)
    full = {"hard": HARD, "used": {**USED, "requests.cpu": "2500m"}}
    eventually(lambda: board.status() == full, "the late pod is counted")


def test_excluding_a_quota_completes_its_status_and_including_it_masks_it(board: Board) -> None:
    def annotate(value: str | None) -> None:
        patch = {"metadata": {"annotations": {"deferredquota.io/exclude": value}}}
        board.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)

    annotate("true")
    eventually(lambda: board.status()["hard"] == HARD, "the status is complete")
    assert board.status()["used"]["requests.cpu"] == "0"
    annotate(None)
    eventually(lambda: "requests.cpu" not in board.status()["hard"], "it is masked")
    board.catch_up()
    assert "requests.cpu" not in board.status()["used"]


def test_a_status_left_masked_by_a_process_that_is_gone_is_completed() -> None:
    masked = {**quota(), "status": MASKED}
    ledger: Object = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "QuotaLedger",
        "metadata": {"name": "ledger", "namespace": NAMESPACE},
    }
    with a_board((RESOURCE_QUOTAS, masked), (QUOTA_LEDGERS, ledger), mode="") as board:
        eventually(lambda: board.status()["hard"] == HARD, "the status is complete")


def test_a_status_that_was_never_masked_is_left_to_the_quota_controller() -> None:
    fresh = {**quota(), "status": {}}
    with a_board((RESOURCE_QUOTAS, fresh), mode="") as board:
        eventually(
            lambda: board.repair._agenda.next_moment() == float("inf") and board.line.calls >= 3,
            "it was looked at",
        )
        assert board.status() == {"hard": {}, "used": {}}


def test_a_resource_that_is_no_longer_deferred_comes_back(board: Board) -> None:
    board.catch_up()
    board.keys[0] = frozenset({"requests.memory"})
    board.repair.recheck()
    eventually(lambda: board.status()["hard"] == HARD, "the status is complete")
    assert board.status()["used"]["requests.cpu"] == "0"


def said(board: Board) -> set[tuple[object, object]]:
    """Return level and reason of every event."""
    board.events.start()
    board.events.stop()
    return {(event["type"], event["reason"]) for event in board.api.list(EVENTS).items}


def test_people_are_told_that_the_platform_has_the_quota_again(board: Board) -> None:
    opt_out(board.api, NAMESPACE)
    eventually(lambda: board.status()["hard"] == HARD, "the status is complete")
    assert said(board) == {("Normal", "EnforcedAtCreation")}


def test_a_quota_whose_scopes_cannot_be_evaluated_is_left_alone() -> None:
    odd = quota(expressions=[{"scopeName": "PriorityClass", "operator": "In", "values": ["a b"]}])
    with a_board((RESOURCE_QUOTAS, odd)) as board:
        eventually(lambda: board.count("masked") == 1, "it is masked")
        pods(board)
        opt_out(board.api, NAMESPACE)
        board.catch_up()
        assert board.status() == MASKED


# -- nothing is hidden that nobody guards --------------------------------------------------


def test_a_namespace_that_becomes_exempt_gets_its_status_back(board: Board) -> None:
    board.catch_up()
    board.exempt = frozenset({NAMESPACE})
    board.repair.recheck()
    eventually(lambda: board.status()["hard"] == HARD, "the status is complete")
    board.exempt = frozenset()
    board.repair.recheck()
    eventually(lambda: "requests.cpu" not in board.status()["hard"], "it is masked again")


def test_a_namespace_that_opted_out_unseen_is_not_masked() -> None:
    with a_board((RESOURCE_QUOTAS, quota())) as board:
        eventually(lambda: board.count("masked") == 1, "it is masked")
        board.namespaces.informer.stop()  # what the labels are now is not seen any more
        opt_out(board.api, NAMESPACE)
        asked: list[Call] = []

        def note(call: Call) -> None:
            if (call.verb, call.kind) == ("get", NAMESPACES):
                asked.append(call)

        board.line.before = note
        board.write_status(HARD, USED)
        eventually(lambda: bool(asked), "the API server is asked what the label is")
        eventually(lambda: not board.repair._agenda._busy, "and the quota was looked at")
        assert board.status() == FULL
        assert board.count("masked") == 1


NO_GUARD = Guard("there is no guard")


def test_what_was_hidden_comes_back_when_the_guard_goes_and_goes_when_it_comes(
    board: Board,
) -> None:
    pods(board)
    board.guard = NO_GUARD
    full = {"hard": HARD, "used": {**USED, "requests.cpu": "1500m"}}
    eventually(lambda: board.status() == full, "the status is complete")
    assert board.count("unguarded") == 1
    board.guard = STANDING
    eventually(lambda: "requests.cpu" not in board.status()["hard"], "it is masked again")
    assert ("Warning", "NotGuarded") in said(board)


def test_a_guard_that_was_gone_for_a_moment_hides_again_what_came_back_in_it() -> None:
    seldom = replace(_SOON, guard_seconds=1.0)
    with a_board((RESOURCE_QUOTAS, quota()), timing=seldom) as board:
        eventually(lambda: board.count("masked") == 1, "it is masked")
        board.catch_up()
        board.guard = NO_GUARD
        board.repair.recheck()
        eventually(lambda: "requests.cpu" in board.status()["hard"], "the status is complete")
        board.catch_up()
        board.guard = STANDING
        eventually(lambda: "requests.cpu" not in board.status()["hard"], "it is masked again")


def test_nothing_is_masked_before_there_is_a_guard() -> None:
    with a_board((RESOURCE_QUOTAS, quota()), guard=NO_GUARD) as board:
        board.catch_up()
        board.write_status(HARD, {**USED, "requests.cpu": "1500m"})
        board.catch_up()
        assert board.count("masked") == 0
        assert board.status()["hard"] == HARD


def test_a_namespace_that_the_guard_does_not_select_is_not_masked() -> None:
    elsewhere = Guard(terms=(Term("deferredquota.io/mode", frozenset({"other"})),))
    with a_board((RESOURCE_QUOTAS, {**quota(), "status": MASKED}), guard=elsewhere) as board:
        eventually(lambda: board.status()["hard"] == HARD, "the status is complete")
        assert board.count("masked") == 0


def test_a_resource_that_is_not_deferred_comes_back_although_this_process_is_new() -> None:
    hidden = {**quota(), "status": MASKED}
    keys = [frozenset({"requests.memory"})]
    with a_board((RESOURCE_QUOTAS, hidden), keys=keys) as board:
        eventually(lambda: board.status()["hard"] == HARD, "the status is complete")


class Masking(MemoryClient):
    """A client of an API server whose mask hides a resource in every status that is written."""

    hidden: str = ""

    def patch(self, kind: Kind, name: str, patch: Any, **options: Any) -> Revision:
        status = patch.get("status") if isinstance(patch, dict) else None
        if status and self.hidden:
            shown = {part: {**values, self.hidden: None} for part, values in status.items()}
            patch = {**patch, "status": shown}
        return super().patch(kind, name, patch, **options)


def test_what_a_mask_hides_again_is_said_aloud_and_tried_until_it_stays() -> None:
    timing = replace(_SOON, longest_retry=0.02)
    with a_board((RESOURCE_QUOTAS, quota()), timing=timing) as board:
        eventually(lambda: board.count("masked") == 1, "it is masked")
        masking = Masking(board.cluster)
        masking.hidden = "requests.cpu"
        board.line._api = masking
        board.keys[0] = frozenset({"requests.memory"})
        board.repair.recheck()
        eventually(lambda: board.count("undone") >= 3, "it is tried again and again")
        assert board.status() == MASKED
        masking.hidden = ""
        eventually(lambda: board.status()["hard"] == HARD, "it stays at last")
        assert ("Warning", "NotEnforced") in said(board)


class Narrow(MemoryClient):
    """A client whose right to write a quota's status ends at one resource."""

    def patch(self, kind: Kind, name: str, patch: Any, **options: Any) -> Revision:
        if "requests.example.com/gpu" in str(patch):
            raise ForbiddenError("our service accounts take only deferred resources out")
        return super().patch(kind, name, patch, **options)


def test_a_resource_that_was_not_installed_does_not_show_the_others() -> None:
    gpu = "requests.example.com/gpu"
    shown = {"hard": {**HARD, gpu: "2"}, "used": {**USED, gpu: "0"}}
    with a_board(
        (RESOURCE_QUOTAS, {**quota(), "status": shown}), exempt=frozenset({NAMESPACE})
    ) as board:
        board.line._api = Narrow(board.cluster)
        board.keys[0] = DEFERRED_KEYS | {gpu}
        board.exempt = frozenset()
        board.repair.recheck()
        left = {"hard": {**MASKED["hard"], gpu: "2"}, "used": {**MASKED["used"], gpu: "0"}}
        eventually(lambda: board.status() == left, "all others are hidden")
