"""What others write is known as soon as the watch tells; what comes late replaces nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.handlers.harness import a_namespace, new_cluster
from tests.counting import calls_of
from tests.reactions import Call, Proceed, ReactiveClient
from tests.state.ledger_objects import NS, counted, made
from tests.state.reserving import a_reserver
from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import NAMESPACES, QUOTA_LEDGERS
from webhook.kube.codec import decode_object
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import Claim, Ledger, Reservation, ReservationSource, reserved_by
from webhook.quota.ledger.ledger_codec import ledger_status
from webhook.state import lazy_ledger
from webhook.state.lazy_ledger import LazyLedger
from webhook.state.ledger_store import LedgerStore, LedgerVersion
from webhook.state.reserver import Reserved, ReserverStats

SOON = 10.0
CPU = {"requests.cpu": Quantity.parse("250m")}


@pytest.fixture
def client() -> ReactiveClient:
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace())])
    return ReactiveClient(cluster)


@pytest.fixture
def store(client: ReactiveClient) -> LedgerStore:
    return LedgerStore(client)


@pytest.fixture
def informer(store: LedgerStore) -> Iterator[Informer[LazyLedger]]:
    """Follows for `store`."""
    follower = store.follow(InformerTimings(rand=lambda: 0.0))
    follower.start()
    assert follower.wait_for_sync(SOON)
    yield follower
    follower.stop()


def holding(*uids: str, base: Ledger | None = None) -> Ledger:
    """A ledger with a reservation of each pod."""
    ledger = base or counted("1")
    reservations = {
        uid: Reservation(uid, f"pod-{uid}", ReservationSource.BIND, CPU, {"q": CPU}, ("q",), number)
        for number, uid in enumerate(uids, 1)
    }
    reserved = reserved_by(reservations.values())
    accounts = {
        name: replace(account, reserved=reserved.get(name, {}))
        for name, account in ledger.accounts.items()
    }
    return Ledger(accounts, reservations, pods_resource_version=5, serial=len(uids))


def stored(ledger: Ledger | None, *, uid: str = "a", version: int = 50) -> bytes:
    """A ledger object as the API server sends it."""
    metadata = {"name": "ledger", "namespace": NS, "uid": uid, "resourceVersion": str(version)}
    status = {} if ledger is None else {"status": ledger_status(ledger)}
    return encode_json({"metadata": metadata, "spec": {}, **status})


def change(
    ledger: Ledger | None, *, uid: str = "a", version: int = 50, data: bytes = b""
) -> Change[LazyLedger]:
    text = LazyLedger(data or stored(ledger, uid=uid, version=version))
    return Change("UPDATED", f"{NS}/ledger", uid, version, new=text)


def deletion(*, uid: str = "a", version: int) -> Change[LazyLedger]:
    return Change("DELETED", f"{NS}/ledger", uid, version)


def fetch(client: ReactiveClient, store: LedgerStore, version: LedgerVersion) -> None:
    """Let `store` read a version of the ledger, which may be an old one."""
    data = stored(version.ledger, uid=version.uid, version=version.resource_version)
    with client.on("get", QUOTA_LEDGERS, lambda _call, _proceed: decode_object(data)):
        assert store.fetch(NS) == version


class TestOnTheCluster:
    def test_what_another_process_writes_is_known_without_asking(
        self, client: ReactiveClient, store: LedgerStore, informer: Informer[LazyLedger]
    ) -> None:
        other = LedgerStore(client)
        written = other.write(NS, made(other), holding("p1", "p2"))
        assert informer.wait_for_version(written.resource_version, SOON)
        client.calls.clear()
        assert store.known(NS) == written
        assert client.calls == []
        following = store.write(NS, written, holding("p1"))  # and the write fits
        assert other.fetch(NS) == following

    def test_what_was_there_before_is_known_from_the_list(
        self, client: ReactiveClient, store: LedgerStore
    ) -> None:
        other = LedgerStore(client)
        written = other.write(NS, made(other), counted("1"))
        follower = store.follow(InformerTimings(rand=lambda: 0.0))
        follower.start()
        assert follower.wait_for_sync(SOON)
        assert store.known(NS) == written
        follower.stop()

    def test_an_own_write_is_known_until_something_newer_comes(
        self, client: ReactiveClient, store: LedgerStore, informer: Informer[LazyLedger]
    ) -> None:
        client.pause(QUOTA_LEDGERS, "metadata.name=ledger")
        own = store.write(NS, made(store), counted("1"))
        assert store.known(NS) is own
        client.resume()
        assert informer.wait_for_version(own.resource_version, SOON)
        assert store.known(NS) is own
        newer = LedgerStore(client).write(NS, own, counted("2"))
        assert informer.wait_for_version(newer.resource_version, SOON)
        assert store.known(NS) == newer

    def test_a_deleted_ledger_is_forgotten(
        self, client: ReactiveClient, store: LedgerStore, informer: Informer[LazyLedger]
    ) -> None:
        store.write(NS, made(store), counted("1"))
        gone = client.delete(QUOTA_LEDGERS, "ledger", namespace=NS)
        assert informer.wait_for_version(gone.resource_version, SOON)
        assert store.known(NS) is None
        new = made(store)
        assert store.known(NS) == new

    def test_a_ledger_that_cannot_be_read_is_not_known_and_reported_by_reading_it(
        self, client: ReactiveClient, store: LedgerStore, informer: Informer[LazyLedger]
    ) -> None:
        old = store.write(NS, made(store), counted("1"))
        broken = client.patch(
            QUOTA_LEDGERS,
            "ledger",
            {"status": {"podsBarrier": "soon"}},
            namespace=NS,
            subresource="status",
        )
        assert informer.wait_for_version(broken.resource_version, SOON)
        assert store.known(NS) is None
        with pytest.raises(InvalidFieldError, match=r"status\.podsBarrier"):
            store.fetch(NS)
        blank = store.fetch_blank(NS)
        assert blank is not None
        assert store.write(NS, blank, counted("2")).uid == old.uid
        assert store.known(NS) is not None

    def test_what_is_known_need_not_be_read_again_when_it_is_fetched(
        self, client: ReactiveClient, store: LedgerStore, informer: Informer[LazyLedger]
    ) -> None:
        other = LedgerStore(client)
        written = other.write(NS, made(other), holding("p1"))
        assert informer.wait_for_version(written.resource_version, SOON)
        known = store.known(NS)
        assert store.fetch(NS) is known

    def test_objects_of_other_names_are_no_ledgers(
        self, client: ReactiveClient, store: LedgerStore, informer: Informer[LazyLedger]
    ) -> None:
        own = made(store)
        odd = client.create(QUOTA_LEDGERS, {"metadata": {"name": "odd", "namespace": NS}})
        newer = LedgerStore(client).write(NS, own, counted("2"))
        assert newer.resource_version > odd.resource_version
        assert informer.wait_for_version(newer.resource_version, SOON)
        assert store.known(NS) == newer

    def test_writers_in_two_processes_lose_no_write(
        self, client: ReactiveClient, store: LedgerStore, informer: Informer[LazyLedger]
    ) -> None:
        other = LedgerStore(client)
        version = made(other)
        for number in range(30):
            version = other.write(NS, version, counted(str(number)))
            assert informer.wait_for_version(version.resource_version, SOON)
            known = store.known(NS)
            assert known is not None
            version = store.write(NS, known, holding("p1", base=known.ledger))
        assert store.fetch(NS) == version

    def test_a_bind_after_a_fold_elsewhere_reads_nothing_and_loses_no_write(
        self, client: ReactiveClient, store: LedgerStore, informer: Informer[LazyLedger]
    ) -> None:
        other, conflicts = LedgerStore(client), list[None]()
        version = other.write(NS, made(other), holding("p1", "p2"))
        stats = ReserverStats(conflicted=lambda: conflicts.append(None))
        reserver = a_reserver(store, stats=stats)
        for number in range(10):
            assert version.ledger is not None
            folded = replace(holding(base=version.ledger), serial=version.ledger.serial)
            version = other.write(NS, version, folded)
            assert informer.wait_for_version(version.resource_version, SOON)
            client.calls.clear()
            claim = Claim(f"new-{number}", "new", ReservationSource.BIND, CPU, ("q",))
            deadline = time.monotonic() + SOON
            outcome = reserver.reserve(NS, claim, folded.observed, deadline=deadline)
            assert isinstance(outcome, Reserved)
            assert [call.verb for call in client.calls] == ["update"]
            found = other.fetch(NS)
            assert found is not None
            version = found
        assert conflicts == []


class TestOrder:
    def test_a_late_event_does_not_replace_a_newer_read(
        self, client: ReactiveClient, store: LedgerStore
    ) -> None:
        newest = LedgerVersion(60, "a", counted("2"))
        fetch(client, store, newest)
        store.observe(change(counted("1"), version=50))
        assert store.known(NS) == newest

    def test_a_late_event_of_a_former_object_does_not_either(
        self, client: ReactiveClient, store: LedgerStore
    ) -> None:
        newest = LedgerVersion(60, "b", counted("2"))
        fetch(client, store, newest)
        store.observe(change(counted("1"), uid="a", version=50))
        store.observe(deletion(uid="a", version=55))
        assert store.known(NS) == newest

    def test_an_answer_that_took_its_time_does_not_bring_back_what_was_deleted(
        self, client: ReactiveClient, store: LedgerStore
    ) -> None:
        store.observe(change(counted("1"), version=50))
        store.observe(deletion(version=55))
        fetch(client, store, LedgerVersion(52, "a", counted("2")))
        assert store.known(NS) is None

    def test_a_new_object_in_the_place_of_the_former_one_is_known(self, store: LedgerStore) -> None:
        store.observe(change(counted("1"), uid="a", version=50))
        # an informer tells both at the version of the new one
        store.observe(deletion(uid="a", version=60))
        store.observe(change(counted("2"), uid="b", version=60))
        known = store.known(NS)
        assert known is not None
        assert (known.uid, known.resource_version, known.ledger) == ("b", 60, counted("2"))

    def test_what_was_made_after_the_list_that_does_not_show_it_stays(
        self, client: ReactiveClient, store: LedgerStore
    ) -> None:
        store.observe(change(counted("1"), uid="a", version=50))
        made_later = LedgerVersion(70, "b", None)
        fetch(client, store, made_later)
        store.observe(deletion(uid="a", version=65))
        assert store.known(NS) == made_later

    def test_nothing_found_does_not_undo_what_was_heard_meanwhile(
        self, client: ReactiveClient, store: LedgerStore
    ) -> None:
        fetch(client, store, LedgerVersion(50, "a", None))

        def answer_late(_call: Call, proceed: Proceed) -> object:
            try:
                return proceed()
            finally:
                store.observe(change(counted("1"), uid="b", version=60))

        client.on("get", QUOTA_LEDGERS, answer_late)
        assert store.fetch(NS) is None
        known = store.known(NS)
        assert known is not None
        assert known.uid == "b"

    def test_deletions_are_not_remembered_without_end(
        self, client: ReactiveClient, store: LedgerStore
    ) -> None:
        store.observe(deletion(version=60))
        old = LedgerVersion(52, "a", counted("1"))
        fetch(client, store, old)
        assert store.known(NS) is None
        for number in range(1024):
            store.observe(Change("DELETED", f"other-{number}/ledger", "a", 100 + number))
        assert len(store) == 0
        fetch(client, store, old)  # that it is out of date is found out by the next write
        assert store.known(NS) == old

    def test_a_namespace_that_is_gone_is_forgotten(self, store: LedgerStore) -> None:
        store.observe(change(counted("1")))
        store.forget(NS)
        assert store.known(NS) is None
        assert len(store) == 0


@dataclass(frozen=True)
class LedgerEvent:
    """What happened to the ledger of the namespace at a version."""

    version: int
    uid: str
    is_deletion: bool = False


@st.composite
def histories(draw: st.DrawFn) -> list[LedgerEvent]:
    """Objects that are written some times and deleted, one after another."""
    history: list[LedgerEvent] = []
    version = 10
    for number in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 4))):
            version += draw(st.integers(1, 3))
            history.append(LedgerEvent(version, f"uid-{number}"))
        version += 1
        history.append(LedgerEvent(version, f"uid-{number}", is_deletion=True))
    return history if draw(st.booleans()) else history[:-1]


@given(history=histories(), data=st.data())
def test_however_late_answers_come_the_newest_stays_known(
    history: list[LedgerEvent], data: st.DataObject
) -> None:
    client = ReactiveClient()
    store = LedgerStore(client)
    past: list[LedgerEvent] = []
    for one in history:
        past.append(one)
        late = data.draw(st.lists(st.sampled_from(past), max_size=2))
        for other in (one, *late) if data.draw(st.booleans()) else (*late, one):
            is_told = other is one
            if is_told and one.is_deletion:
                store.observe(deletion(uid=one.uid, version=one.version))
            elif is_told:
                store.observe(change(None, uid=one.uid, version=one.version))
            elif not other.is_deletion:
                fetch(client, store, LedgerVersion(other.version, other.uid, None))
        known = store.known(NS)
        if one.is_deletion:
            assert known is None
        else:
            assert known is not None
            assert (known.uid, known.resource_version) == (one.uid, one.version)


class TestReading:
    def test_it_says_what_reading_the_whole_object_says(self) -> None:
        for ledger in (None, counted("1"), holding("p1", "p2")):
            version = LazyLedger(stored(ledger)).version({})
            assert version == LedgerVersion(50, "a", ledger)

    def test_nothing_is_read_before_a_request(
        self, store: LedgerStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = calls_of(monkeypatch, lazy_ledger, "identity_of")
        for number in range(5):
            store.observe(change(holding("p1"), version=50 + number))
        assert read == []
        threads = [threading.Thread(target=store.known, args=(NS,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(read) == 1

    def test_reservations_that_stayed_are_shared_with_the_version_before(self) -> None:
        before: dict[str, Reservation] = {}
        first = LazyLedger(stored(holding("p1", "p2"))).version(before)
        second = LazyLedger(stored(holding("p1", "p2", "p3"), version=51)).version(before)
        assert first is not None
        assert second is not None
        assert first.ledger is not None
        assert second.ledger is not None
        assert second.ledger == holding("p1", "p2", "p3")
        assert second.ledger.reservations["p1"] is first.ledger.reservations["p1"]
        assert len(before) == 3
        LazyLedger(stored(holding("p3"), version=52)).version(before)
        assert len(before) == 1

    def test_those_that_a_fetched_version_holds_are_shared_as_well(
        self, client: ReactiveClient, store: LedgerStore
    ) -> None:
        """Whoever asks for what claims nothing has the ledger fetched as often as it changes."""
        found = list[Mapping[str, Reservation]]()
        for version, other in enumerate(("p2", "p3", "p4"), 50):
            fetch(client, store, LedgerVersion(version, "a", holding("p1", other)))
            known = store.known(NS)
            assert known is not None
            assert known.ledger is not None
            found.append(known.ledger.reservations)
        assert found[2]["p1"] is found[1]["p1"]

    def test_one_that_stands_there_twice_is_not_read_however_well_it_is_known(self) -> None:
        before: dict[str, Reservation] = {}
        assert LazyLedger(stored(holding("p1"))).version(before) is not None
        (line,) = before
        twice = stored(holding("p1")).replace(line.encode(), f"{line}\\n{line}".encode())
        assert LazyLedger(twice).version(before) is None

    def test_a_reservation_that_changed_without_a_new_serial_is_read_anew(self) -> None:
        before: dict[str, Reservation] = {}
        LazyLedger(stored(holding("p1"))).version(before)
        smaller = Reservation("p1", "pod-p1", ReservationSource.BIND, CPU, {"q": {}}, ("q",), 1)
        folded = replace(holding(), reservations={"p1": smaller}, serial=1)
        version = LazyLedger(stored(folded, version=51)).version(before)
        assert version is not None
        assert version.ledger == folded

    def test_fields_of_a_newer_program_are_kept(self) -> None:
        data = b'{"metadata":{"uid":"a","resourceVersion":"50"},"status":{"podsResourceVersion":"4"'
        version = LazyLedger(data + b',"reservations":"","burst":{"x":0.1},"more":[1]}}').version(
            {}
        )
        assert version is not None
        assert version.ledger is not None
        assert ledger_status(version.ledger)["burst"] == {"x": "0.1"}
        assert encode_json(ledger_status(version.ledger)["burst"]) == b'{"x":0.1}'

    @pytest.mark.parametrize(
        "status",
        [
            b'"text"',
            b'{"podsResourceVersion":7}',
            b'{"podsResourceVersion":"7","reservations":{}}',
            b'{"podsResourceVersion":"7","reservations":[5]}',
            b'{"podsResourceVersion":"7","reservations":[{"uid":"a","door":"Cat"}]}',
            b'{"podsResourceVersion":"7","quotas":[5]}',
        ],
    )
    def test_what_cannot_be_read_is_none(self, status: bytes) -> None:
        data = b'{"metadata":{"uid":"a","resourceVersion":"50"},"status":%s}' % status
        assert LazyLedger(data).version({}) is None

    def test_an_object_without_status_has_nothing_counted(self) -> None:
        for tail in (b"}", b',"status":null}', b',"status":{}}'):
            data = b'{"metadata":{"uid":"a","resourceVersion":"50"}' + tail
            assert LazyLedger(data).version({}) == LedgerVersion(50, "a", None)
