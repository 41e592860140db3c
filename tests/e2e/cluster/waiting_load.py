"""Pods that come, are bound and end, while somebody looks all the time at what they take."""

from __future__ import annotations

import itertools
import threading
from typing import Final

from tests.e2e.cluster.objects import Answer
from tests.e2e.cluster.over_and_over import OverAndOver
from tests.e2e.cluster.tenant import Tenant
from webhook.quota.amounts.quantity import Quantity

_WORKERS: Final = 3
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 0.02


class Load(OverAndOver):
    """Binds pods in a namespace until the block is left.

    A pod that was bound ends a few binds later; one that is refused is tried again and then goes.

    Attributes:
        bound: How many pods were bound.
        refused: How many binds were refused because the quota is full.
        undecided: How many got no decision.
        most: The most cpu that was ever seen to be taken at one time.
        problems: Answers that nobody should get.
    """

    def __init__(self, tenant: Tenant, cpu: str, *, may_fail: bool = False) -> None:
        super().__init__([self._watch, *([self._work] * _WORKERS)])
        self.bound = self.refused = self.undecided = 0
        self.most = Quantity.parse("0")
        self._tenant = tenant
        self._cpu = cpu
        self._may_fail = may_fail
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def _watch(self) -> None:
        self.most = max(self.most, self._tenant.taken_by_pods())
        self.rest(_PAUSE_SECONDS)

    def _work(self) -> None:
        name = f"load-{next(self._numbers)}"
        if self._ask("create", self._tenant.create(name, self._cpu)) >= 300:
            return
        for _ in range(_TRIES):
            if self._ask("bind", self._tenant.bind(name)) == 201:
                self.rest(_PAUSE_SECONDS)
                self._tenant.finish(name)
                return
            self.rest(_PAUSE_SECONDS)
        self._tenant.delete(name)

    def _ask(self, what: str, answer: Answer) -> int:
        with self._lock:
            if what == "bind":
                self.bound += answer.code == 201
                self.refused += answer.code == 403
                self.undecided += answer.code in (429, 500)
            if answer.code not in (201, 403, 429) and not (self._may_fail and answer.code == 500):
                self.problems.append(f"{what}: {answer}")
        return answer.code
