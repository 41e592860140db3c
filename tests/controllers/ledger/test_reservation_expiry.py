"""Which reservations nobody can be using any more: watched long enough, and the server agrees."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.admission.handlers.harness import a_namespace, new_cluster
from tests.builders import a_binding, a_pod
from tests.reactions import ReactiveClient, unreachable
from webhook.controllers.ledger.reservation_expiry import ReservationExpiry
from webhook.kube.api import NAMESPACES, PODS, ListOptions
from webhook.quota.ledger.apply_usage import Expiry, ObservedPod
from webhook.quota.ledger.ledger import Ledger, Reservation, ReservationSource
from webhook.quota.objects.model import Pod

NS = "team-a"
SECONDS = 45.0


@dataclass
class ExpiryHarness:
    """A watch, its clock, and a cluster with one pod that waits."""

    client: ReactiveClient = field(default_factory=lambda: ReactiveClient(new_cluster()))
    clock: list[float] = field(default_factory=lambda: [100.0])

    def __post_init__(self) -> None:
        self.client.cluster.load([(NAMESPACES, a_namespace()), (PODS, a_pod(name="web", uid="u"))])
        self.watch = ReservationExpiry(
            self.client, expire_seconds=SECONDS, clock=lambda: self.clock[0]
        )

    def seen(self, uid: str) -> ObservedPod | None:
        """What a cache that has seen everything shows."""
        for raw in self.client.list(PODS, ListOptions(namespace=NS)).items:
            pod = Pod.from_object(raw)
            if pod.uid == uid:
                version = int(pod.resource_version)
                return ObservedPod(version, pod.is_assigned, True, {}, frozenset())
        return None

    def look(self, ledger: Ledger, uid: str = "ledger-1") -> None:
        self.watch.observe(ledger, uid)

    def expired(self, ledger: Ledger) -> dict[str, Expiry]:
        return dict(self.watch.expired(NS, ledger, self.seen))


@pytest.fixture
def watching() -> ExpiryHarness:
    return ExpiryHarness()


def holding(*uids: str, serial: int = 1) -> Ledger:
    return Ledger(
        {},
        {uid: Reservation(uid, "web", ReservationSource.BIND, {}, {}, (), serial) for uid in uids},
    )


@pytest.mark.parametrize(("seconds", "expires"), [(44.9, False), (45.0, False), (45.1, True)])
def test_a_reservation_expires_after_it_was_watched_for_longer_than_that(
    watching: ExpiryHarness, seconds: float, expires: bool
) -> None:
    watching.look(holding("u"))
    assert watching.watch.next_due() == pytest.approx(145)
    watching.clock[0] += seconds
    assert ("u" in watching.expired(holding("u"))) == expires


def test_the_proof_names_the_serial_and_the_version_of_the_pod(watching: ExpiryHarness) -> None:
    watching.look(holding("u", serial=7))
    watching.clock[0] += 50
    seen = watching.seen("u")
    assert seen is not None
    assert watching.expired(holding("u", serial=7)) == {"u": Expiry(7, seen.resource_version)}


def test_one_that_was_written_again_is_watched_from_then_on(watching: ExpiryHarness) -> None:
    watching.look(holding("u"))
    watching.clock[0] += 40
    watching.look(holding("u", serial=2))
    watching.clock[0] += 40
    assert watching.expired(holding("u", serial=2)) == {}


def test_another_ledger_object_begins_anew(watching: ExpiryHarness) -> None:
    watching.look(holding("u"))
    watching.clock[0] += 40
    watching.look(holding("u"), "ledger-2")
    watching.clock[0] += 40
    assert watching.expired(holding("u")) == {}


def test_a_pod_that_is_gone_is_proof_if_the_cache_knows_it_too(watching: ExpiryHarness) -> None:
    watching.look(holding("gone"))
    watching.clock[0] += 50
    assert watching.expired(holding("gone")) == {"gone": Expiry(1, 0)}


def test_a_pod_of_the_same_name_is_another_pod(watching: ExpiryHarness) -> None:
    watching.look(holding("former"))
    watching.clock[0] += 50
    assert watching.expired(holding("former")) == {"former": Expiry(1, 0)}


def test_a_cache_that_is_behind_proves_nothing(watching: ExpiryHarness) -> None:
    before = watching.seen("u")
    watching.look(holding("u"))
    watching.client.bind(a_binding("web"), namespace=NS)
    watching.clock[0] += 50
    assert dict(watching.watch.expired(NS, holding("u"), lambda _uid: before)) == {}
    assert dict(watching.watch.expired(NS, holding("u"), lambda _uid: None)) == {}


def test_a_cache_that_still_shows_a_deleted_pod_proves_nothing(watching: ExpiryHarness) -> None:
    before = watching.seen("u")
    watching.look(holding("u"))
    watching.client.delete(PODS, "web", namespace=NS)
    watching.clock[0] += 50
    assert dict(watching.watch.expired(NS, holding("u"), lambda _uid: before)) == {}


def test_an_api_server_that_does_not_answer_proves_nothing(watching: ExpiryHarness) -> None:
    watching.look(holding("u", "v"))
    watching.client.on("get", PODS, unreachable)
    watching.clock[0] += 50
    assert watching.expired(holding("u", "v")) == {}


def test_nothing_is_due_without_reservations(watching: ExpiryHarness) -> None:
    watching.look(holding("u"))
    watching.look(holding())
    assert watching.watch.next_due() is None
    watching.clock[0] += 50
    assert watching.expired(holding()) == {}


def test_what_is_proved_is_not_asked_about_again_so_that_the_next_are(
    watching: ExpiryHarness,
) -> None:
    uids = [f"gone-{number}" for number in range(120)]
    watching.look(holding(*uids))
    watching.clock[0] += 50
    found = []
    for _ in range(3):
        watching.look(holding(*uids))  # nothing of it could be applied
        found.append(len(watching.expired(holding(*uids))))
        watching.clock[0] += 2
    assert found == [50, 100, 120]
    assert watching.watch.next_due() is None
    assert len(watching.client.calls_of("get")) == 120


def test_a_proof_is_of_one_reservation_as_it_was(watching: ExpiryHarness) -> None:
    watching.look(holding("gone"))
    watching.clock[0] += 50
    assert watching.expired(holding("gone")) == {"gone": Expiry(1, 0)}
    again = holding("gone", serial=2)
    watching.look(again)
    assert watching.expired(again) == {}
    watching.look(holding())
    assert watching.expired(holding()) == {}
