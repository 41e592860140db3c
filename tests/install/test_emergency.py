"""The emergency: binds are not asked about, quotas are native; no old count decides after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from tests.builders import a_pod, a_quota
from tests.controllers.shared.shared_quota_steps import shared_quota
from tests.install.twin import Twin, registrations, run
from webhook.install.emergency.closing import Closed, close_emergency, wait_for_counts
from webhook.install.emergency.opening import (
    Opened,
    deferred_namespaces,
    open_emergency,
    plan_opening,
)
from webhook.install.emergency.switching import EmergencySwitch
from webhook.install.kustomizations import InstallError
from webhook.kube.api import (
    ALL,
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ClusterApi,
    ConflictError,
    ForbiddenError,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    Revision,
    UnavailableError,
)
from webhook.kube.kinds import KNOWN_KINDS
from webhook.operations.emergency_state import EmergencyState
from webhook.operations.names import policy_kinds
from webhook.operations.retry import RetryPolicy, silent
from webhook.quota.ledger.ledger import QuotaRevision
from webhook.quota.shared.grants import Grants, mark_complete
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.state.well_known import EMERGENCY_SINCE, REGISTRATION

QUICK = RetryPolicy(seconds=60, pause_seconds=0.01, settle_seconds=0.01)
GATE = {"name": "deferredquota.io/quota"}
BINDINGS = policy_kinds("v1")[1]


class KilledError(Exception):
    """The process is gone."""


class Mortal(Twin):
    """A cluster whose administrator's process can be killed after any write.

    Attributes:
        writes_left: After how many writes it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = 1_000_000

    def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
        if not kwargs.get("dry_run"):
            self._count()
        return super().patch(kind, name, *args, **kwargs)

    def delete(self, kind: Kind, name: str, *, namespace: str = "", **kwargs: Any) -> Revision:
        self._count()
        return super().delete(kind, name, namespace=namespace, **kwargs)

    def _count(self) -> None:
        if not self.writes_left:
            raise KilledError
        self.writes_left -= 1


def a_cluster(twin: Twin | None = None) -> Any:
    """A cluster with an installation, and two namespaces where pods wait and run."""
    made = twin or Mortal()
    run(made, stamps=True)
    for name in ("team-a", "team-b"):
        labels = {"deferredquota.io/mode": "deferred"}
        made.api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        quota = {
            key: value for key, value in a_quota("q", namespace=name).items() if key != "status"
        }
        made.api.create(RESOURCE_QUOTAS, quota)
        made.api.create(PODS, a_pod(name="gated", namespace=name, uid="", schedulingGates=[GATE]))
        made.api.create(
            PODS, a_pod(name="runs", namespace=name, uid="", node="node-0", requests={"cpu": "5"})
        )
        made.api.create(QUOTA_LEDGERS, {"metadata": {"name": "ledger", "namespace": name}})
    made.written.clear()
    return made


@pytest.fixture
def twin() -> Any:
    return a_cluster()


def open_on(twin: Any, lines: list[str] | None = None, **options: Any) -> Opened:
    api = cast("ClusterApi", twin)
    report = silent if lines is None else lines.append
    plan = plan_opening(api, QUICK, silent)
    return open_emergency(api, plan, report, patience=QUICK, **options)


def close_on(twin: Any) -> Closed:
    api = cast("ClusterApi", twin)
    return close_emergency(api, lambda: deferred_namespaces(api, QUICK), silent, patience=QUICK)


def state(twin: Any) -> EmergencyState:
    return EmergencySwitch(cast("ClusterApi", twin), silent, QUICK).state()


def selectors(twin: Any) -> Iterator[Any]:
    for each in registrations(twin):
        yield from (entry["namespaceSelector"] for entry in each["webhooks"])
    for each in twin.api.list(BINDINGS).items:
        yield cast("Any", each)["spec"]["matchResources"]["namespaceSelector"]


def stored(twin: Any) -> list[Any]:
    """Return what an installation consists of, without versions."""
    found: list[Any] = []
    for kind in KNOWN_KINDS:
        if kind.group != "admissionregistration.k8s.io" and kind != NAMESPACES:
            continue
        for each in twin.api.list(kind).items:
            metadata = {**each["metadata"], "resourceVersion": "", "generation": 0}
            found.append({**each, "metadata": metadata})
    return found


def statuses(twin: Any) -> list[Any]:
    return [
        cast("Any", twin.api.get(RESOURCE_QUOTAS, "q", namespace=name))["status"]
        for name in ("team-a", "team-b")
    ]


NATIVE = [{"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "5"}}] * 2


def test_nothing_is_asked_and_every_quota_is_native(twin: Any) -> None:
    done = open_on(twin)
    assert state(twin).is_open
    nowhere = [
        {"key": "deferredquota.io/emergency", "operator": "Exists"},
        {"key": "deferredquota.io/emergency", "operator": "DoesNotExist"},
    ]
    assert all(each["matchExpressions"][-2:] == nowhere for each in selectors(twin))
    assert len(list(selectors(twin))) == len(state(twin).opened) > 12
    assert statuses(twin) == NATIVE
    assert not done.problems
    (over, _) = [one.over for one in done.namespaces]
    assert [one.quota for one in over] == ["q"]


def test_the_guards_are_the_first_that_are_not_asked(twin: Any) -> None:
    open_on(twin)
    order = [one for one in twin.written if not one.startswith("patch Namespace")]
    assert order[:7] == [
        "patch ValidatingWebhookConfiguration deferred-quota",
        "patch MutatingWebhookConfiguration deferred-quota",
        "patch MutatingWebhookConfiguration zz-deferred-quota-jobs",
        "patch MutatingAdmissionPolicyBinding deferred-quota-mask",
        "patch MutatingAdmissionPolicyBinding deferred-quota-stamp",
        "patch MutatingAdmissionPolicyBinding deferred-quota-gate",
        "patch MutatingAdmissionPolicyBinding deferred-quota-gate-auto",
    ]
    assert sorted(order[7:]) == ["patch ResourceQuota q"] * 2


def test_pods_that_wait_keep_their_gate_unless_they_are_to_be_released(twin: Any) -> None:
    done = open_on(twin)
    assert [(one.waiting, one.released) for one in done.namespaces] == [(1, 0)] * 2
    done = open_on(twin, releases=True)
    assert [(one.waiting, one.released) for one in done.namespaces] == [(0, 1)] * 2
    assert not cast("Any", twin.api.get(PODS, "gated", namespace="team-b"))["spec"].get(
        "schedulingGates"
    )


def test_to_open_twice_changes_nothing_and_keeps_since_when(twin: Any) -> None:
    first = open_on(twin)
    before = stored(twin)
    again = open_on(twin)
    assert (again.since, again.writes) == (first.since, 0)
    assert stored(twin) == before
    registration: Any = twin.api.get(VALIDATING_WEBHOOKS, REGISTRATION)
    assert registration["metadata"]["annotations"][EMERGENCY_SINCE] == first.since


def test_opening_goes_on_wherever_it_is_killed() -> None:
    kills = 0
    while True:
        twin = a_cluster()
        twin.writes_left = kills
        try:
            open_on(twin)
        except KilledError:
            twin.writes_left = 1_000_000
            assert kills == 0 or state(twin).since
            done = open_on(twin)
            assert (state(twin).is_open, statuses(twin), done.problems) == (True, NATIVE, ())
            kills += 1
        else:
            break
    assert kills == 9


def test_closing_restores_what_was_installed_and_leaves_no_ledger(twin: Any) -> None:
    before = stored(twin)
    open_on(twin)
    done = close_on(twin)
    assert (done.writes, done.recounted, done.problems) == (8, 2, ())
    assert stored(twin) == before
    assert not twin.api.list(QUOTA_LEDGERS).items
    assert state(twin) == EmergencyState(asking=state(twin).asking)


class Counting(Mortal):
    """A cluster whose controller counts a namespace anew as soon as its ledger is gone.

    Attributes:
        guarded_by_old: Ledgers that were counted before the guards were asked everywhere.
        counted_while_open: Whether the guards were not asked when the ledger was made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counted_while_open: dict[str, bool] = {}

    def delete(self, kind: Kind, name: str, *, namespace: str = "", **kwargs: Any) -> Revision:
        gone = super().delete(kind, name, namespace=namespace, **kwargs)
        if kind == QUOTA_LEDGERS:
            self.api.create(kind, {"metadata": {"name": name, "namespace": namespace}})
            self.counted_while_open[namespace] = "bind.deferredquota.io" in state(self).opened
        return gone


def test_no_ledger_is_left_that_was_counted_before_the_guards_were_asked() -> None:
    kills = 0
    while True:
        twin = a_cluster(Counting())
        open_on(twin)
        before = twin.writes_left = kills
        try:
            close_on(twin)
        except KilledError:
            twin.writes_left = 1_000_000
            if "bind.deferredquota.io" not in state(twin).opened:
                assert state(twin).is_begun  # the doctor says so, and to close begins anew
            close_on(twin)
            assert twin.counted_while_open == {"team-a": False, "team-b": False}
            assert not state(twin).is_begun
            kills = before + 1
        else:
            break
    assert twin.counted_while_open == {"team-a": False, "team-b": False}
    assert kills == 12


def test_nor_in_a_namespace_that_opts_in_while_the_emergency_is_closed() -> None:
    class OptingIn(Counting):
        """One opts in, and is counted, just before the guards are asked."""

        def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
            if kind == VALIDATING_WEBHOOKS and "team-c" not in self.counted_while_open:
                self.counted_while_open["team-c"] = True
                labels = {"deferredquota.io/mode": "deferred"}
                self.api.create(NAMESPACES, {"metadata": {"name": "team-c", "labels": labels}})
                metadata = {"name": "ledger", "namespace": "team-c"}
                self.api.create(QUOTA_LEDGERS, {"metadata": metadata})
            return super().patch(kind, name, *args, **kwargs)

    opting_in = OptingIn()
    opting_in.api = a_cluster(Counting()).api
    open_on(opting_in)
    opting_in.api.delete(NAMESPACES, "team-c")
    opting_in.counted_while_open.clear()
    assert not close_on(opting_in).problems
    assert opting_in.counted_while_open == dict.fromkeys(("team-a", "team-b", "team-c"), False)


def test_guards_stay_away_while_a_ledger_cannot_be_deleted(twin: Any) -> None:
    class Refusing(Mortal):
        def delete(self, kind: Kind, name: str, **kwargs: Any) -> Revision:
            if kind == QUOTA_LEDGERS:
                raise ForbiddenError("ledgers are written by deferred-quota alone")
            return super().delete(kind, name, **kwargs)

    open_on(twin)
    refusing = Refusing()
    refusing.api = twin.api
    done = close_on(refusing)
    assert len(done.problems) == 2
    assert "its ledger cannot be deleted: ledgers are written" in done.problems[0]
    assert state(twin).is_open


class Sharing(Mortal):
    """A cluster with a quota of several namespaces that a leader has completed.

    Attributes:
        conflicts: How many writes of its status come after one of the leader.
        is_refused: Whether its status is written by deferred-quota alone.
        ledgers_left: How many ledgers there were at each write of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conflicts = 0
        self.is_refused = False
        self.ledgers_left: list[int] = []

    def update_status(self, kind: Kind, obj: Object, **kwargs: Any) -> Revision:
        if self.is_refused:
            raise ForbiddenError("the status of cluster quotas is written by deferred-quota alone")
        if self.conflicts:
            self.conflicts -= 1
            self.complete()
        self.ledgers_left.append(len(self.api.list(QUOTA_LEDGERS).items))
        return self.api.update_status(kind, obj, **kwargs)

    def complete(self) -> None:
        store = SharedQuotaStore(self.api)
        version = store.fetch("cdq/both")
        assert version is not None
        observed = QuotaRevision("cdq/both", version.uid, "abc")
        store.write(version, mark_complete(version.grants, observed))

    def grants(self) -> Grants:
        version = SharedQuotaStore(self.api).fetch("cdq/both")
        assert version is not None
        return version.grants


def sharing() -> Any:
    twin = a_cluster(Sharing())
    twin.api.create(CLUSTER_DEFERRED_QUOTAS, shared_quota())
    twin.complete()
    open_on(twin)
    return twin


def test_quotas_of_several_namespaces_are_counted_anew_once_the_ledgers_are_gone() -> None:
    twin = sharing()
    assert twin.grants().observed is not None
    twin.conflicts = 1
    assert not close_on(twin).problems
    assert twin.grants().observed is None
    assert twin.grants().serial == 4  # completed twice, and taken back twice
    assert set(twin.ledgers_left) == {0}


def test_guards_stay_away_while_such_a_quota_says_that_all_is_counted() -> None:
    twin = sharing()
    twin.is_refused = True
    (problem,) = close_on(twin).problems
    assert problem.startswith("ClusterDeferredQuota both: it cannot be marked incomplete: the stat")
    assert state(twin).is_open


def test_so_is_one_that_cannot_be_read_until_it_is_mended() -> None:
    twin = sharing()
    for cpu in ("4x", "4"):
        twin.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": cpu}}})
        if cpu == "4x":
            assert not close_on(twin).problems
    assert twin.grants().observed is None


def test_a_status_that_was_damaged_does_not_keep_the_guards_away() -> None:
    twin = sharing()
    damaged = {"status": {"serial": -1}}
    twin.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", damaged, subresource="status")
    assert not close_on(twin).problems
    assert twin.grants().observed is None
    assert twin.grants().serial == 2


def test_nothing_is_hidden_again_while_the_guards_cannot_be_switched(twin: Any) -> None:
    class Refusing(Mortal):
        def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
            if kind == VALIDATING_WEBHOOKS:
                raise ForbiddenError("no right to patch registrations")
            return super().patch(kind, name, *args, **kwargs)

    open_on(twin)
    refusing = Refusing()
    refusing.api = twin.api
    done = close_on(refusing)
    assert done.problems == (
        "ValidatingWebhookConfiguration deferred-quota: no right to patch registrations",
    )
    assert state(twin).is_open


def test_nothing_is_hidden_again_where_the_guards_are_gone(twin: Any) -> None:
    open_on(twin)
    twin.api.delete(VALIDATING_WEBHOOKS, REGISTRATION)
    (problem,) = close_on(twin).problems
    assert problem == (
        "ValidatingWebhookConfiguration deferred-quota is not there, or has no entry"
        " bind.deferredquota.io"
    )
    assert not state(twin).asking


def test_nothing_is_hidden_again_while_an_old_count_is_left(twin: Any) -> None:
    class Refusing(Counting):
        def delete(self, kind: Kind, name: str, **kwargs: Any) -> Revision:
            if kind == QUOTA_LEDGERS and "bind.deferredquota.io" in state(self).asking:
                raise ForbiddenError("ledgers are written by deferred-quota alone")
            return super().delete(kind, name, **kwargs)

    open_on(twin)
    refusing = Refusing()
    refusing.api = twin.api
    assert len(close_on(refusing).problems) == 2
    assert "MutatingAdmissionPolicyBinding deferred-quota-mask" in state(twin).opened
    assert not close_on(twin).problems
    assert not state(twin).is_begun


def test_another_writer_of_the_registrations_is_no_obstacle(twin: Any) -> None:
    class Disputed(Mortal):
        conflicts = 2

        def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
            if kind == VALIDATING_WEBHOOKS and self.conflicts:
                self.conflicts -= 1
                labels = {"metadata": {"labels": {"changed": str(self.conflicts)}}}
                self.api.patch(kind, name, labels)
                raise ConflictError("the object has been modified")
            return super().patch(kind, name, *args, **kwargs)

    disputed = Disputed()
    disputed.api = twin.api
    assert not open_on(disputed).problems
    assert state(twin).is_open
    found: Any = twin.api.get(VALIDATING_WEBHOOKS, REGISTRATION)
    assert found["metadata"]["labels"]["changed"] == "0"


def test_what_may_not_be_written_is_named_and_the_rest_is_open(twin: Any) -> None:
    class Refusing(Mortal):
        def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
            if kind == BINDINGS:
                raise ForbiddenError("no right to patch bindings")
            return super().patch(kind, name, *args, **kwargs)

    refusing = Refusing()
    refusing.api = twin.api
    done = open_on(refusing)
    assert done.problems == (
        "MutatingAdmissionPolicyBinding deferred-quota-mask: no right to patch bindings",
        "MutatingAdmissionPolicyBinding deferred-quota-stamp: no right to patch bindings",
        "MutatingAdmissionPolicyBinding deferred-quota-gate: no right to patch bindings",
        "MutatingAdmissionPolicyBinding deferred-quota-gate-auto: no right to patch bindings",
    )
    assert "bind.deferredquota.io" in state(twin).opened
    assert not state(twin).is_open


def test_an_api_server_that_is_away_for_a_moment_is_asked_again(twin: Any) -> None:
    class Flaky(Mortal):
        away = 3

        def get(self, kind: Kind, name: str, **kwargs: Any) -> Any:
            if kind == VALIDATING_WEBHOOKS and self.away:
                self.away -= 1
                raise UnavailableError("connection refused")
            return self.api.get(kind, name, **kwargs)

    flaky = Flaky()
    flaky.api = twin.api
    assert not open_on(flaky).problems
    assert state(twin).is_open


def test_where_policies_are_not_served_the_webhooks_alone_are_switched() -> None:
    twin = a_cluster()

    class Old(Mortal):
        def list(self, kind: Kind, options: ListOptions = ALL) -> Any:
            if kind.kind.startswith("MutatingAdmissionPolicy"):
                raise NotFoundError("the server could not find the requested resource")
            return self.api.list(kind, options)

    old = Old()
    old.api = twin.api
    assert not open_on(old).problems
    assert state(old).is_open


def test_an_installation_keeps_it_open_and_closing_finds_its_changes(twin: Any) -> None:
    open_on(twin)
    _, lines = run(twin, stamps=True, image="registry.example/deferred-quota:2")
    assert any("nothing is asked and nothing hidden" in line for line in lines)
    assert state(twin).is_open
    assert state(twin).since
    close_on(twin)
    assert not state(twin).is_begun
    assert run(twin, stamps=True, image="registry.example/deferred-quota:2")[0] == 0


def test_what_is_not_counted_in_time_is_named(twin: Any) -> None:
    quick = RetryPolicy(seconds=0.05, pause_seconds=0.01)
    counted = wait_for_counts(
        cast("ClusterApi", twin),
        ["team-a", "team-b"],
        lambda name: ("there is no ledger yet",) if name == "team-b" else (),
        silent,
        patience=quick,
    )
    assert [one.missing for one in counted] == [(), ("there is no ledger yet",)]


class Meanwhile(Twin):
    """A cluster in which something happens while an installation waits for its Deployments."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: Callable[[], object] | None = None

    def get(self, kind: Kind, name: str, **options: Any) -> Any:
        """Return an object; what happens, happens after the first look at a Deployment."""
        found = self.api.get(kind, name, **options)
        if kind.kind == "Deployment" and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
        return found


def test_an_installation_does_not_end_an_emergency_that_was_opened_meanwhile() -> None:
    twin = a_cluster(Meanwhile())
    twin.happens = lambda: open_on(twin)
    with pytest.raises(InstallError, match="the emergency was opened meanwhile: run this again"):
        run(twin, stamps=True, image="other:1")
    assert state(twin).is_open
    run(twin, stamps=True, image="other:1")
    assert state(twin).is_open


def test_an_installation_does_not_open_an_emergency_again_that_was_closed_meanwhile() -> None:
    twin = a_cluster(Meanwhile())
    open_on(twin)
    twin.happens = lambda: close_on(twin)
    with pytest.raises(InstallError, match="the emergency was closed meanwhile: run this again"):
        run(twin, stamps=True, image="other:1")
    assert not state(twin).opened
    run(twin, stamps=True, image="other:1")
    assert not state(twin).opened
