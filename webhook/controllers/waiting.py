"""The pods of one namespace that wait behind our scheduling gate, in their order.

Beside them stand those that are underway: they have no gate and no node yet. While others wait,
what they take is reserved for them in their turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping
from typing import Final

from webhook.quota.deferral import NamespaceQuotas
from webhook.quota.line import (
    LineRules,
    Place,
    Terms,
    Waiter,
    is_underway,
    waiter_of,
    waits,
)
from webhook.quota.objects import Pod
from webhook.state.names import GATE
from webhook.state.quota_cache import QuotasSeen

_EMPTY: Final[tuple[Waiter, ...]] = ()


class WaitingPods:
    """Judges each pod once, until it or the terms change. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._underway: dict[str, Pod] = {}
        self._first_seen: dict[str, int] = {}
        self._terms: Terms | None = None
        self._waiters: dict[str, Waiter] = {}
        self._line: tuple[Waiter, ...] | None = _EMPTY

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def put(self, pod: Pod) -> None:
        """Note a pod that is new or has changed; only one that waits, or is underway, stays."""
        self._forget(pod.uid)
        if waits(pod, GATE):
            self._pods[pod.uid] = pod
            self._line = None
        elif is_underway(pod):
            self._underway[pod.uid] = pod
        else:
            self._first_seen.pop(pod.uid, None)
            return
        self._first_seen.setdefault(pod.uid, int(pod.resource_version or 0))

    def remove(self, uid: str) -> None:
        """Forget a pod."""
        self._forget(uid)
        self._first_seen.pop(uid, None)

    def line(self, terms: Terms) -> tuple[Waiter, ...]:
        """Return all that wait in their order, judged by `terms`."""
        self._take(terms)
        if self._line is None:
            found = [self._judged(uid, pod, terms) for uid, pod in self._pods.items()]
            self._line = tuple(sorted(found, key=_place))
        return self._line

    def line_with(self, terms: Terms, underway: Container[str]) -> tuple[Waiter, ...]:
        """Return all that wait, and of those underway the ones that some of them stand behind.

        Args:
            terms: What they are judged by.
            underway: Uids of pods for which room may be kept.
        """
        line = self.line(terms)
        last: dict[str, Place] = {}
        for one in line:
            if one.waits_for_room:
                last.update(dict.fromkeys(one.quotas, one.place))
        if not last:
            return line
        judged = [
            self._judged(uid, pod, terms) for uid, pod in self._underway.items() if uid in underway
        ]
        before = sorted([one for one in judged if _is_before(one, last)], key=_place)
        return tuple(heapq.merge(line, before, key=_place)) if before else line

    def waiter(self, uid: str) -> Waiter | None:
        """Return one of them, judged by the terms of the last line; None without any."""
        pod = self._pods.get(uid)
        if self._terms is None or pod is None:
            return None
        return self._judged(uid, pod, self._terms)

    def _forget(self, uid: str) -> None:
        self._waiters.pop(uid, None)
        self._underway.pop(uid, None)
        if self._pods.pop(uid, None) is not None:
            self._line = None

    def _take(self, terms: Terms) -> None:
        if terms is not self._terms:
            self._waiters.clear()
            self._line = None
        self._terms = terms

    def _judged(self, uid: str, pod: Pod, terms: Terms) -> Waiter:
        waiter = self._waiters.get(uid)
        if waiter is None:
            waiter = waiter_of(pod, GATE, since=self._first_seen[uid], terms=terms)
            self._waiters[uid] = waiter
        return waiter


def _is_before(waiter: Waiter, last: Mapping[str, Place]) -> bool:
    """Say whether somebody stands behind a pod in one of its quotas."""
    return any(name in last and waiter.place < last[name] for name in waiter.quotas)


def _place(waiter: Waiter) -> Place:
    return waiter.place


def following_terms(
    former: Terms | None, quotas: NamespaceQuotas, seen: QuotasSeen, rules: LineRules
) -> Terms:
    """Return what a namespace's waiting pods are judged by; `former` itself if nothing changed.

    Args:
        former: What they were judged by.
        quotas: The quotas as they are counted.
        seen: The quotas as they are cached.
        rules: How lines move.
    """
    needs_all = bool(rules.coverage.limited or rules.coverage.required)
    every = seen.every if needs_all else ()  # a new object whenever the platform counts
    if (
        former is not None
        and former.quotas is quotas
        and former.every is every
        and former.unreadable == seen.unreadable
        and former.rules == rules
    ):
        return former
    return Terms(quotas, every, seen.unreadable, rules)
