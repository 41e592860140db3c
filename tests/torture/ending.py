"""Peace: no load, no faults, and the product comes to rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import RestError
from tests.torture.load.shapes import Space
from tests.torture.observer.facts import (
    LedgerFact,
    PodFact,
    QuotaFact,
    SpaceFact,
    cluster_fact,
    elastic_limits,
    ledger_fact,
    pod_fact,
    quota_fact,
    space_fact,
)
from tests.torture.observer.gating import FIRST, Shared, Waiting, left_behind
from tests.torture.observer.recount import Difference, differences, idle_promises
from tests.torture.observer.replay import Judge
from tests.torture.setting import CLUSTER_QUOTAS, ELASTIC_QUOTAS, is_served
from tests.torture.world import LEDGERS

PATIENCE_SECONDS: Final = 150.0
"""A lost ledger stays away for 45 s, then what it promised expires after 45 s and some looks."""


@dataclass(slots=True)
class Ending:
    """How it ended.

    Attributes:
        seconds: From the end of the load until every ledger equalled a recount; None for never.
        differences: What was still different.
        charged: Namespace → uids of pods that take something, by the API server's own lists.
    """

    seconds: float | None = None
    differences: list[Difference] = field(default_factory=list)
    charged: dict[str, set[str]] = field(default_factory=dict)

    def disagreements(self, judge: Judge) -> list[str]:
        """Compare the API server's last lists with the end of the replayed history."""
        return [
            f"{namespace}: the recorded history ends with other pods than the API server has:"
            f" {sorted(uids ^ replayed)[:5]}"
            for namespace, uids in self.charged.items()
            for replayed in [{pod.uid for pod in judge.pods(namespace)}]
            if uids - replayed or replayed - uids - self._maybe_released(judge, namespace)
        ]

    @staticmethod
    def _maybe_released(judge: Judge, namespace: str) -> set[str]:
        # time alone releases these, and the history may have ended before
        return {pod.uid for pod in judge.pods(namespace) if pod.released_at is not None}


def wait_for_peace(
    plane: ControlPlane,
    spaces: Sequence[Space],
    seconds: float = PATIENCE_SECONDS,
    *,
    holds: bool = False,
) -> Ending:
    """Wait until every ledger equals a recount of the pods, or the time is over.

    Args:
        plane: The control plane.
        spaces: The namespaces.
        seconds: How long to wait.
        holds: Whether pods past their grace period are charged until they are gone.
    """
    began = time.monotonic()
    ending = Ending()
    while time.monotonic() - began < seconds:
        try:
            ending = _look(plane, spaces, holds=holds)
        except (RestError, OSError):
            time.sleep(0.5)
            continue
        if not ending.differences:
            ending.seconds = time.monotonic() - began
            return ending
        time.sleep(1.0)
    return ending


def _look(plane: ControlPlane, spaces: Sequence[Space], *, holds: bool) -> Ending:
    ending = Ending()
    seen = [_namespace(plane, space, holds=holds) for space in spaces]
    pods = [pod for each in seen for pod in each.pods]
    promised = {uid for each in seen if each.ledger for uid in each.ledger.promised}
    waiting = [one for each in seen for one in each.waiting]
    cluster = _items(plane, CLUSTER_QUOTAS) if is_served(plane, CLUSTER_QUOTAS) else []
    elastic = _items(plane, ELASTIC_QUOTAS) if is_served(plane, ELASTIC_QUOTAS) else []
    promised |= {
        one["uid"] for each in cluster for one in each.get("status", {}).get("promises", [])
    }
    # what others borrow is kept from pods whose bind was denied for the pool, or promised to them
    denied = [one for each in seen for one in each.denied]
    now = time.monotonic()
    limits = [cluster_fact(each, revision=0, at=0.0) for each in cluster]
    shared = [
        *(Shared.of(limit, pods, promised, waiting, at=now) for limit in limits),
        *(
            Shared.of(limit, pods, promised, [*denied, *waiting], at=now).with_owners_first()
            for limit in elastic_limits(elastic)
        ),
    ]
    for each in seen:
        name = each.space.namespace
        ending.differences += differences(
            each.ledger, each.quotas, each.pods, namespace=name, at=each.at
        )
        ending.differences += left_behind(
            each.space, each.waiting, each.quotas, each.pods, each.ledger, shared, at=each.at
        )
        ending.charged[name] = {
            pod.uid for pod in each.pods if pod.is_assigned and pod.remains(each.at)
        }
    ending.differences += idle_promises(
        cluster, [pod for pod in pods if pod.is_live and not pod.is_assigned]
    )
    return ending


@dataclass(frozen=True, slots=True)
class _Namespace:
    at: float
    space: SpaceFact
    pods: list[PodFact]
    waiting: list[Waiting]
    denied: list[Waiting]
    quotas: list[QuotaFact]
    ledger: LedgerFact | None


def _namespace(plane: ControlPlane, space: Space, *, holds: bool) -> _Namespace:
    at = time.monotonic()
    found = [
        (pod_fact(each, revision=0, at=at, wall=time.time()), each)
        for each in _items(plane, f"{space.path}/pods")
    ]
    quotas = _items(plane, f"{space.path}/resourcequotas")
    ledgers = _items(plane, LEDGERS.format(space.name))
    return _Namespace(
        at=at,
        space=space_fact(plane.rest.get(space.path), revision=0, at=at),
        pods=[replace(pod, released_at=None) if holds else pod for pod, _ in found],
        waiting=[Waiting.of(pod, raw) for pod, raw in found if _waits(pod)],
        denied=[Waiting(pod, FIRST) for pod, raw in found if _was_tried(pod, raw)],
        quotas=[quota_fact(each, revision=0, at=at) for each in quotas],
        ledger=ledger_fact(ledgers[0], revision=0, at=at) if ledgers else None,
    )


def _items(plane: ControlPlane, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = plane.rest.get(path)["items"]
    return items


def _was_tried(pod: PodFact, raw: dict[str, Any]) -> bool:
    """Return whether a scheduler has tried in vain to bind a pod that waits without the gate."""
    said = [(one["type"], one["status"]) for one in raw["status"].get("conditions", [])]
    is_open = pod.is_live and not (pod.is_gated or pod.is_assigned)
    return is_open and ("PodScheduled", "False") in said


def _waits(pod: PodFact) -> bool:
    return pod.is_gated and pod.is_live and pod.released_at is None
