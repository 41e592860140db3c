"""Storage and all actors, together."""

from __future__ import annotations

from tests.quota.ledger_world import checks, controllers
from tests.quota.ledger_world.controllers import LedgerControllerActor
from tests.quota.ledger_world.handlers import HandlerActor
from tests.quota.ledger_world.people import People
from tests.quota.ledger_world.requests import REQUEST_SECONDS, Requests
from tests.quota.ledger_world.storage import Storage
from webhook.quota.ledger.apply_usage import apply_usage
from webhook.quota.queue.queued_pods import QueueingStrategy


class World:
    """Two handlers and two controllers at one storage, with people; the quota `base` is counted.

    With `holds`, stuck pods are held until they are gone, unless people change that.
    """

    def __init__(self, *, holds: bool = False) -> None:
        self.storage = Storage()
        self.storage.holds = holds
        self.people = People(self.storage)
        self.requests = Requests(self.storage)
        self.handlers = [HandlerActor(self.storage, self.requests) for _ in range(2)]
        self.controllers = [
            LedgerControllerActor(self.storage, number, order)
            for number, order in enumerate((QueueingStrategy.STRICT, QueueingStrategy.BEST_EFFORT))
        ]
        self._checked_at = 0
        self.people.put_quota("base", cpu=6, memory=8, scope="all")
        for controller in self.controllers:
            controller.catch_up()
        known = apply_usage(None, self.controllers[0].count(), expired={})
        assert known is not None
        self.storage.write_ledger(0, known)

    @property
    def releases(self) -> int:
        """How many waiting pods were reserved for."""
        return sum(controller.releases for controller in self.controllers)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; requests that last too long end without a write."""
        self.storage.clock += seconds
        self.requests.end_late()

    def check_laws(self) -> None:
        """Check what holds at every moment.

        Whatever is stored raises the version: what was checked at this one need not be again.
        """
        if self._checked_at != self.storage.version:
            checks.check_laws(self.storage)
            self._checked_at = self.storage.version

    def check_quiet(self) -> None:
        """Let every request end and all caches catch up; the ledger must then be exact."""
        controller = self.controllers[0]
        for _ in list(self.storage.pods):
            self.people.strip(0)
        self.pass_time(REQUEST_SECONDS + 1)
        controller.reload()
        controller.catch_up()
        controller.settle()
        if not self._is_settled():  # it was lost, or waits for what is on its way
            self.pass_time(controllers.EXPIRE_SECONDS + 1)
            controller.settle()
        checks.check_folded(self.storage)
        self.pass_time(controllers.EXPIRE_SECONDS + 1)
        controller.settle()
        checks.check_exact(self.storage)

    def _is_settled(self) -> bool:
        _, known = self.storage.read_ledger()
        return known is not None and known.pods_resource_version >= self.controllers[0].pods_seen
