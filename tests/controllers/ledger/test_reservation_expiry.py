"""Which reservations nobody can be using any more: watched long enough, and the server agrees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.admission.handlers.harness import a_namespace, new_cluster
from tests.builders import a_binding, a_pod
from tests.reactions import (
    Call,
    Proceed,
    Reaction,
    ReactiveClient,
    expire,
    preceded_by,
    unreachable,
)
from webhook.controllers.ledger.reservation_expiry import ReservationExpiry
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import NAMESPACES, PODS, BadRequestError, ListOptions, Page
from webhook.quota.ledger.apply_usage import Expiry, ObservedPod
from webhook.quota.ledger.ledger import Ledger, Reservation, ReservationSource
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import object_name_errors

NS = "team-a"
SECONDS = 45.0


@dataclass
class ExpiryHarness:
    """A watch, its clock, and a cluster with one pod that waits."""

    client: ReactiveClient = field(default_factory=lambda: ReactiveClient(new_cluster()))
    clock: list[float] = field(default_factory=lambda: [100.0])

    def __post_init__(self) -> None:
        self.client.cluster.load([(NAMESPACES, a_namespace()), (PODS, a_pod(name="web", uid="u"))])
        self.kept_until = -math.inf
        self.watch = ReservationExpiry(
            self.client,
            expire_seconds=SECONDS,
            clock=lambda: self.clock[0],
            kept_until=lambda _one: self.kept_until,
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


def holding(
    *uids: str, serial: int = 1, source: ReservationSource = ReservationSource.BIND
) -> Ledger:
    return Ledger({}, {uid: Reservation(uid, "web", source, {}, {}, (), serial) for uid in uids})


@pytest.mark.parametrize(("seconds", "expires"), [(44.9, False), (45.0, False), (45.1, True)])
def test_a_reservation_expires_after_it_was_watched_for_longer_than_that(
    watching: ExpiryHarness, seconds: float, expires: bool
) -> None:
    watching.look(holding("u"))
    assert watching.watch.next_due() == pytest.approx(145)
    watching.clock[0] += seconds
    assert ("u" in watching.expired(holding("u"))) == expires


@pytest.mark.parametrize("base_version", [0, 9])
def test_of_an_update_it_is_proved_before_the_reservation_may_go_that_it_is_over(
    watching: ExpiryHarness, base_version: int
) -> None:
    one = Reservation("u", "web", ReservationSource.RELEASE, {}, {}, (), 1, base_version)
    ledger = Ledger({}, {"u": one})
    watching.kept_until = 700.0
    watching.look(ledger)
    assert watching.watch.next_due() == pytest.approx(145 if base_version else 700)
    watching.clock[0] = 150.0
    proved = watching.expired(ledger)
    assert [each.is_kept for each in proved.values()] == [True] * bool(base_version)
    assert watching.watch.next_due() == pytest.approx(700)
    watching.clock[0] = 700.0
    watching.look(ledger)
    assert not watching.expired(ledger)["u"].is_kept


def test_the_proof_names_the_serial_and_the_version_of_the_pod(watching: ExpiryHarness) -> None:
    watching.look(holding("u", serial=7))
    watching.clock[0] += 50
    seen = watching.seen("u")
    assert seen is not None
    assert watching.expired(holding("u", serial=7)) == {"u": Expiry(7, seen.resource_version)}


@pytest.mark.parametrize("source", ReservationSource)
def test_one_that_was_written_again_is_watched_from_then_on(
    watching: ExpiryHarness, source: ReservationSource
) -> None:
    """A resize of a released pod that is not stored yet is seen by no bind but in the ledger."""
    watching.look(holding("u", source=source))
    watching.clock[0] += 40
    watching.look(holding("u", serial=2, source=source))
    watching.clock[0] += 40
    assert watching.expired(holding("u", serial=2, source=source)) == {}


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


@pytest.mark.parametrize("name", ["a/b", "..", "", "a%2fb", "x" * 254])
def test_a_pod_whose_name_no_pod_may_have_keeps_no_other_from_its_proof(
    watching: ExpiryHarness, name: str
) -> None:
    """A stolen token writes such a name; a client refuses to ask for it."""
    forged = {
        f"f{n}": Reservation(f"f{n}", name, ReservationSource.BIND, {}, {}, (), 1)
        for n in range(12)
    }
    ledger = Ledger({}, {**forged, **holding("former").reservations})
    watching.client.on("get", PODS, refused_if_odd)
    watching.look(ledger)
    watching.clock[0] += 50
    assert watching.expired(ledger).keys() == ledger.reservations.keys()
    assert [call.name for call in watching.client.calls_of("get")] == ["web"]


def refused_if_odd(call: Call, proceed: Proceed) -> object:
    """Refuse names that can be part of no path, as the client of a real cluster does."""
    if object_name_errors(call.name):
        raise BadRequestError(f"metadata.name: Invalid value: {call.name!r}")
    return proceed()


def test_nothing_is_due_without_reservations(watching: ExpiryHarness) -> None:
    watching.look(holding("u"))
    watching.look(holding())
    assert watching.watch.next_due() is None
    watching.clock[0] += 50
    assert watching.expired(holding()) == {}


def test_where_pods_cannot_be_listed_what_is_proved_is_not_looked_up_again_so_that_the_next_are(
    watching: ExpiryHarness,
) -> None:
    watching.client.on("list", PODS, unreachable)
    uids = [f"gone-{number}" for number in range(120)]
    watching.look(holding(*uids))
    watching.clock[0] += 50
    found = []
    for _ in range(4):
        watching.look(holding(*uids))  # nothing of it could be applied
        found.append(len(watching.watch.expired(NS, holding(*uids), uncounted)))
        watching.clock[0] += 1
    assert found == [0, 50, 100, 120]
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


# -- many at once, by one list -------------------------------------------------------------------

GONE = tuple(f"gone-{number}" for number in range(60))


def uncounted(_uid: str) -> None:
    """What a cache without pods shows."""


def in_pages(limit: int) -> Reaction:
    """Let the pages of a list be of so many objects."""

    def react(call: Call, proceed: Proceed) -> object:
        return proceed(replace(call, options={**call.options, "limit": limit}))

    return react


@pytest.fixture
def many(watching: ExpiryHarness) -> ExpiryHarness:
    """Sixty reservations of pods that are not there, and that of a pod that waits: overdue."""
    watching.look(holding(*GONE, "u"))
    watching.clock[0] += 50
    return watching


def test_of_many_one_list_proves_what_lookups_would(many: ExpiryHarness) -> None:
    seen = many.seen("u")
    assert seen is not None
    many.client.calls.clear()
    ledger = holding(*GONE, "u")
    proofs = many.watch.expired(NS, ledger, lambda uid: seen if uid == "u" else None)
    assert proofs == {
        **{uid: Expiry(1, 0) for uid in GONE},
        "u": Expiry(1, seen.resource_version),
    }
    (call,) = many.client.calls
    assert (call.verb, call.selection) == ("list", ListOptions(NS))
    assert call.options["is_brief"]


def test_of_fourteen_thousand_forged_reservations_nothing_is_left_after_one_call(
    watching: ExpiryHarness,
) -> None:
    uids = [f"forged-{number}" for number in range(14_000)]
    watching.look(holding(*uids))
    watching.clock[0] += 50
    assert len(watching.watch.expired(NS, holding(*uids), uncounted)) == 14_000
    assert [call.verb for call in watching.client.calls] == ["list"]
    assert watching.watch.next_due() is None


def test_a_list_proves_nothing_of_a_pod_that_is_counted_otherwise(many: ExpiryHarness) -> None:
    before = many.seen("u")
    many.client.bind(a_binding("web"), namespace=NS)
    ledger = holding(*GONE, "u")
    assert "u" not in many.watch.expired(NS, ledger, lambda uid: before if uid == "u" else None)
    many.clock[0] += 10
    assert "u" not in many.watch.expired(NS, ledger, lambda _uid: None)
    assert set(many.expired(ledger)) == {*GONE}  # not all the time
    many.clock[0] += 10
    assert set(many.expired(ledger)) == {*GONE, "u"}


def test_a_list_without_a_pod_that_is_counted_proves_nothing_of_it(many: ExpiryHarness) -> None:
    before = many.seen("u")
    many.client.delete(PODS, "web", namespace=NS)
    assert "u" not in many.watch.expired(
        NS, holding(*GONE, "u"), lambda uid: before if uid == "u" else None
    )


def test_in_a_list_too_a_pod_of_the_same_name_is_another_pod(watching: ExpiryHarness) -> None:
    ledger = holding(*GONE, "former")  # all of them are called web, as the pod of uid u
    watching.look(ledger)
    watching.clock[0] += 50
    assert watching.expired(ledger)["former"] == Expiry(1, 0)


def test_a_pod_that_is_made_between_pages_is_not_taken_for_none(many: ExpiryHarness) -> None:
    for name in ("a", "b"):
        many.client.cluster.load([(PODS, a_pod(name=name, uid=f"uid-{name}"))])
    late = a_pod(name="a-late", uid="late")
    many.client.on("list", PODS, in_pages(1))
    many.client.on(
        "continue",
        PODS,
        preceded_by(lambda _call: many.client.cluster.load([(PODS, late)])),
        times=1,
    )
    ledger = holding(*GONE, "late")
    many.look(ledger)
    many.clock[0] += 50
    assert set(many.watch.expired(NS, ledger, many.seen)) == {*GONE}


def test_a_list_that_fails_half_way_proves_nothing(many: ExpiryHarness) -> None:
    many.client.cluster.load([(PODS, a_pod(name="x", uid="uid-x"))])
    many.client.on("list", PODS, in_pages(1))
    many.client.on("continue", PODS, expire)
    assert many.expired(holding(*GONE, "u")) == {}


def test_pages_of_several_moments_prove_nothing(
    many: ExpiryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    many.client.cluster.load([(PODS, a_pod(name="x", uid="uid-x"))])
    genuine = many.client.pages

    def pages_of_several_moments(*args: object, **options: object) -> Iterator[Page]:
        given = {**options, "limit": 1}
        for number, page in enumerate(genuine(*args, **given)):  # type: ignore[arg-type]
            yield replace(page, resource_version=page.resource_version + number)

    monkeypatch.setattr(many.client, "pages", pages_of_several_moments)
    assert many.expired(holding(*GONE, "u")) == {}


def test_a_list_older_than_what_is_counted_proves_nothing(many: ExpiryHarness) -> None:
    newer = many.client.cluster.resource_version + 1
    ledger = replace(holding(*GONE, "u"), pods_resource_version=newer)
    assert many.expired(ledger) == {}
    assert many.expired(replace(ledger, pods_resource_version=newer - 1)) != {}


def test_what_becomes_overdue_while_pods_are_listed_waits_for_the_next_list(
    watching: ExpiryHarness,
) -> None:
    watching.look(holding(*GONE))
    watching.clock[0] += 10
    ledger = holding(*GONE, "later")
    watching.look(ledger)
    watching.clock[0] += 40

    def take_long(_call: Call) -> None:
        watching.clock[0] += 10

    watching.client.on("list", PODS, preceded_by(take_long), times=1)
    assert set(watching.watch.expired(NS, ledger, uncounted)) == {*GONE}
    assert set(watching.watch.expired(NS, ledger, uncounted)) == {*GONE, "later"}


@pytest.mark.parametrize(("took", "rest"), [(0.0, 5.0), (0.2, 5.0), (4.0, 36.0)])
def test_between_two_lists_there_is_time_for_other_namespaces(
    many: ExpiryHarness, took: float, rest: float
) -> None:
    """A cache that is behind makes each look come to nothing."""

    def take(_call: Call) -> None:
        many.clock[0] += took

    many.client.on("list", PODS, preceded_by(take))
    behind = ObservedPod(1, False, True, {}, frozenset())
    begins: list[float] = []
    ends: list[float] = []
    for _ in range(60):
        begins.append(many.clock[0])
        many.client.calls.clear()
        assert many.watch.expired(NS, holding(*GONE), lambda _uid: behind) == {}
        if many.client.calls_of("list"):
            ends.append(many.clock[0])
        else:
            begins.pop()
        many.clock[0] += 1.5
    pauses = [begin - end for begin, end in zip(begins[1:], ends, strict=False)]
    assert pauses
    assert all(rest <= pause <= rest + 1.5 for pause in pauses)


_ACTS = st.lists(
    st.tuples(st.sampled_from(["create", "change", "delete"]), st.sampled_from("abcdef")),
    max_size=10,
)


class Pods:
    """Pods that come and go; one that comes again has the same name and another uid."""

    def __init__(self, here: ExpiryHarness) -> None:
        self._cluster = here.client.cluster
        self._api = FakeClient(self._cluster)
        self._uids: dict[str, str] = {}
        self.uids = ["u"]
        """Of all that there ever were."""
        self.moments: list[dict[str, int]] = []
        """Uid → version after each act: what a cache may show."""
        self.act([])

    def act(self, acts: list[tuple[str, str]]) -> None:
        for verb, name in acts:
            is_there = name in self._uids
            if verb == "create" and not is_there:
                self._uids[name] = f"{name}-{len(self.uids)}"
                self.uids.append(self._uids[name])
                self._cluster.load([(PODS, a_pod(name=name, uid=self._uids[name]))])
            elif verb == "change" and is_there:
                labels = {"moment": str(len(self.moments))}
                self._api.patch(PODS, name, {"metadata": {"labels": labels}}, namespace=NS)
            elif verb == "delete" and is_there:
                del self._uids[name]
                self._api.delete(PODS, name, namespace=NS, grace_period_seconds=0)
            self._note()
        self._note()

    def _note(self) -> None:
        pods = [Pod.from_stored(raw) for raw in self._api.list(PODS, ListOptions(NS)).items]
        self.moments.append({pod.uid: int(pod.resource_version) for pod in pods})


@settings(max_examples=150, deadline=None)
@given(before=_ACTS, between=_ACTS, seen=st.integers(0, 25))
def test_what_a_list_proves_was_counted_just_as_it_was_when_the_list_began(
    before: list[tuple[str, str]], between: list[tuple[str, str]], seen: int
) -> None:
    """Whatever is written meanwhile, and however far behind the cache is."""
    here = ExpiryHarness()
    pods = Pods(here)
    pods.act(before)
    stored = pods.moments[-1]
    here.client.on("list", PODS, in_pages(2))
    here.client.on("continue", PODS, preceded_by(lambda _call: pods.act(between)), times=1)
    ledger = holding(*GONE, *pods.uids)
    here.look(ledger)
    here.clock[0] += 50

    def counted() -> Mapping[str, int]:
        return pods.moments[min(seen, len(pods.moments) - 1)]

    def observed(uid: str) -> ObservedPod | None:
        version = counted().get(uid)
        return None if version is None else ObservedPod(version, False, True, {}, frozenset())

    proofs = here.watch.expired(NS, ledger, observed)
    assert proofs == {
        uid: Expiry(1, stored.get(uid, 0))
        for uid in ledger.reservations
        if counted().get(uid) == stored.get(uid)
    }
