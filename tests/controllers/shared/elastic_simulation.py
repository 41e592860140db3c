"""The world of shared quotas, in which the quota is one that elastic quotas are charged by.

In worlds of an even number it is the pool of an ElasticQuota of `a`, which may lend a part of its
min only, and a CompositeElasticQuota of `b` and `c`; else the max of a composite of all three.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.controllers.shared.sharing_simulation import (
    CPU,
    QUOTA,
    SharingSimulation,
    StoredState,
    Task,
)
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, NotFoundError
from webhook.kube.kinds import Kind
from webhook.quota.elastic.derived_quotas import DerivedQuota, derived_quotas, takes_headroom
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_elastic_quota

_RESOURCE = CPU.removeprefix("requests.")


def _quota(name: str, namespaces: list[str], **limits: int) -> ElasticQuota:
    spec: dict[str, object] = {field: {_RESOURCE: limit} for field, limit in limits.items()}
    kind = "CompositeElasticQuota" if len(namespaces) > 1 else "ElasticQuota"
    if len(namespaces) > 1:
        spec["namespaces"] = namespaces
    metadata = {"namespace": namespaces[0], "name": name}
    return read_elastic_quota({"kind": kind, "metadata": metadata, "spec": spec})


@dataclass
class ElasticSimulation(SharingSimulation):
    """The laws of elastic quotas that handlers and leaders have to keep.

    Attributes:
        tried: Number of a law → how often it was put to the test.
    """

    tried: Counter[str] = field(default_factory=Counter)
    _promised: frozenset[str] = frozenset()
    _wanted: DerivedQuota | None = None
    _is_waiting: bool = False
    """Whether headroom has to be given back before the quota is as it is wanted."""

    @property
    def is_pool(self) -> bool:
        """Whether the quota is a pool, not a max."""
        return self.seed % 2 == 0

    def put_quota(self, hard: int, _selector: Mapping[str, object], kept: int = 0) -> None:
        """Create the elastic quotas, or edit min, lendable and max."""
        self._wanted = self._derived(hard, kept)
        self._write_wanted()

    def run_all(self) -> None:
        """Let everything settle, what waits for headroom too."""
        super().run_all()
        for _ in range(2):
            if self._is_waiting:
                leader = self.controllers[0]
                self.take_back(leader)
                while leader.task is not None:
                    self.step(leader)
                self._write_wanted()
                super().run_all()
        assert not self._is_waiting, "E4: headroom is not given back"

    def check(self, now: StoredState | None = None) -> None:
        """Check; what waits for headroom to be given back is then written, if it is."""
        super().check(now)
        if self._is_waiting and threading.current_thread() is threading.main_thread():
            self._write_wanted()

    def _write_wanted(self) -> None:
        """Write what the leader writes: first no headroom, then, when none is left, the rest."""
        if self._wanted is None:
            return
        spec = {"kept": [], "headroom": None, **self._wanted.spec}
        self._is_waiting = False
        if self.views[-1].quota is not None:
            stored = self.api.get(CLUSTER_DEFERRED_QUOTAS, QUOTA)
            if takes_headroom(stored, self._wanted):
                self._is_waiting = True
                if not FieldReader(stored).child("spec").has("headroom"):
                    return
                spec = {"headroom": None}
        self.write_quota(spec)

    def check_alone(self, namespace: str, before: StoredState, now: StoredState) -> None:
        """As in all worlds, also while the quota is edited: only a new object is another."""
        super().check_alone(namespace, before, now)
        self.tried["E4"] += now.need(namespace) > before.need(namespace)
        uids = [now.observed_uid(namespace), now.uid]
        if now.need(namespace) > before.need(namespace) and uids[0] == uids[1]:
            others = now.total - now.granted.get(namespace, 0)
            taken = others + now.need(namespace)
            assert taken <= now.hard, f"E4: {taken} are in use of {now.hard}"

    def _derived(self, hard: int, kept: int) -> DerivedQuota:
        if self.is_pool:
            least = max(kept, hard // 2)
            lent = {"lendable": least - kept} if kept else {}
            quotas = [
                _quota("q", ["a"], min=least, **lent),
                _quota("q", ["b", "c"], min=hard - least),
            ]
            return derived_quotas(quotas, lambda _name: True, 32)["epool.default"]
        whole = _quota("q", ["a", "b", "c"], max=hard)
        return derived_quotas([whole], lambda _name: True, 32)["ceq.a.q"]

    def check_write(self, kind: Kind, before: StoredState) -> None:
        """Check the laws of elastic quotas, then those of all shared ones."""
        task = threading.current_thread()
        if kind == CLUSTER_DEFERRED_QUOTAS and isinstance(task, Task) and task.is_webhook:
            self._check_raise(before, task)
        if kind == CLUSTER_DEFERRED_QUOTAS:
            self._promised = self._promises()
        super().check_write(kind, before)

    def _check_given(self, before: StoredState, now: StoredState) -> None:
        super()._check_given(before, now)
        for names, most in (("a", now.limits.get("a", 0)), ("bc", now.limits.get("b", 0))):
            given = any(now.headroom.get(n, 0) > before.headroom.get(n, 0) for n in names)
            if given and now.total > before.total and self.is_pool:
                held = sum(now.granted.get(name, 0) for name in names)
                assert held <= most, f"E4: {held} are held of a min of {most}"

    def _check_raise(self, before: StoredState, task: Task) -> None:
        now = self.read_stored()
        assert self._promises() == self._promised, "E6: a handler changed what is promised"
        self.tried["E6"] += bool(self._promised)
        if now.total <= before.total:
            return
        assert before.is_complete, "E3: raised by one that does not say complete"
        self.tried["E3"] += 1
        law = "E2" if self.is_pool else "E1"
        self.tried[law] += 1
        assert now.total <= now.hard, f"{law}: {now.total} are held of {now.hard}"
        for_others = now.held_for_others(task.asks_for, task.namespace)
        # what was decided by an old ledger is held too much for a while, and gives nothing away
        task.breaks_promise = for_others > now.hard

    def _promises(self) -> frozenset[str]:
        try:
            found = self.api.get(CLUSTER_DEFERRED_QUOTAS, QUOTA)
        except NotFoundError:
            return frozenset()
        listed = FieldReader(found).child("status").children("promises")
        return frozenset(one.text("uid") for one in listed)
