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
from webhook.quota.elastic.derived_quotas import DerivedQuota, derived_quotas
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

    @property
    def is_pool(self) -> bool:
        """Whether the quota is a pool, not a max."""
        return self.seed % 2 == 0

    def put_quota(self, hard: int, _selector: Mapping[str, object], kept: int = 0) -> None:
        """Create the elastic quotas, or edit min, lendable and max."""
        spec = dict(self._derived(hard, kept).spec)
        self.write_quota({"kept": [], **spec})

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
        self.tried["together"] += len(task.raises) > 1

    def _promises(self) -> frozenset[str]:
        try:
            found = self.api.get(CLUSTER_DEFERRED_QUOTAS, QUOTA)
        except NotFoundError:
            return frozenset()
        listed = FieldReader(found).child("status").children("promises")
        return frozenset(one.text("uid") for one in listed)
