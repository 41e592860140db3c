"""Storage and all actors, together."""

from __future__ import annotations

from tests.quota.ledger_world import checks, trackers
from tests.quota.ledger_world.doors import DoorActor
from tests.quota.ledger_world.people import People
from tests.quota.ledger_world.requests import REQUEST_SECONDS, Requests
from tests.quota.ledger_world.storage import Storage
from tests.quota.ledger_world.trackers import TrackerActor
from webhook.quota.line import Order
from webhook.quota.settlement import settle


class World:
    """Two doors and two trackers at one storage, with people; the quota `base` is counted.

    With `holds`, stuck pods are held until they are gone, unless people change that.
    """

    def __init__(self, *, holds: bool = False) -> None:
        self.storage = Storage()
        self.storage.holds = holds
        self.people = People(self.storage)
        self.requests = Requests(self.storage)
        self.doors = [DoorActor(self.storage, self.requests) for _ in range(2)]
        self.trackers = [
            TrackerActor(self.storage, number, order)
            for number, order in enumerate((Order.STRICT, Order.BEST_EFFORT))
        ]
        self._checked_at = 0
        self.people.put_quota("base", cpu=6, memory=8, scope="all")
        for tracker in self.trackers:
            tracker.catch_up()
        known = settle(None, self.trackers[0].count(), expired={})
        assert known is not None
        self.storage.write_ledger(0, known)

    @property
    def releases(self) -> int:
        """How many waiting pods were reserved for."""
        return sum(tracker.releases for tracker in self.trackers)

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
        tracker = self.trackers[0]
        for _ in list(self.storage.pods):
            self.people.strip(0)
        self.pass_time(REQUEST_SECONDS + 1)
        tracker.reload()
        tracker.catch_up()
        tracker.settle()
        if not self._is_settled():  # it was lost, or waits for what is on its way
            self.pass_time(trackers.EXPIRE_SECONDS + 1)
            tracker.settle()
        checks.check_folded(self.storage)
        self.pass_time(trackers.EXPIRE_SECONDS + 1)
        tracker.settle()
        checks.check_exact(self.storage)

    def _is_settled(self) -> bool:
        _, known = self.storage.read_ledger()
        return known is not None and known.pods_resource_version >= self.trackers[0].pods_seen
