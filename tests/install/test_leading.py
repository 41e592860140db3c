"""Who leads outside of the cluster is told of before anything is taken out, and nobody else is."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.builders import a_pod, a_quota
from tests.install.twin import Twin, run
from tests.operations.healthy import Pulse, a_lease, renewing
from webhook.install.external_leader import leader_in_the_way
from webhook.install.uninstall import Removal, uninstall
from webhook.kube.api import (
    ALL,
    LEASES,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    ClusterApi,
    ForbiddenError,
    Kind,
    ListOptions,
    Object,
)
from webhook.operations.retry import RetryPolicy
from webhook.state.well_known import DEFAULT_NAMESPACE, LEADER_LEASE

OUTSIDE = "my.host-name-4711-0a1b2c3d"
FOUND = (OUTSIDE, ("team-a",))


@pytest.fixture
def twin() -> Twin:
    """A namespace that is opted in, with a masked quota, and somebody outside who leads."""
    twin = Twin()
    run(twin)
    add_namespace(twin, "team-a", "deferred")
    twin.api.create(RESOURCE_QUOTAS, without_status(a_quota("q")))
    twin.api.create(LEASES, a_lease(OUTSIDE))
    twin.written.clear()
    return twin


def add_namespace(twin: Twin, name: str, mode: str) -> None:
    labels = {"deferredquota.io/mode": mode} if mode else {}
    twin.api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})


def without_status(quota: Object) -> Object:
    return {key: value for key, value in quota.items() if key != "status"}


def write_lease(twin: Twin, **spec: object) -> None:
    twin.api.patch(LEASES, LEADER_LEASE, {"spec": spec}, namespace=DEFAULT_NAMESPACE)


def add_controller(twin: Twin, name: str) -> None:
    labels = {
        "app.kubernetes.io/name": "deferred-quota",
        "app.kubernetes.io/component": "controller",
    }
    pod = a_pod(name=name, namespace=DEFAULT_NAMESPACE, uid="", metadata={"labels": labels})
    twin.api.create(PODS, pod)


def patient(pulse: Pulse) -> RetryPolicy:
    return RetryPolicy(clock=pulse.clock, sleep=pulse.sleep)


def looked(twin: Twin, pulse: Pulse | None = None) -> tuple[str, tuple[str, ...]] | None:
    """Look, while whoever holds the Lease renews it."""
    patience = patient(pulse or Pulse(renewing(twin.api.cluster)))
    return leader_in_the_way(cast("ClusterApi", twin), DEFAULT_NAMESPACE, patience)


def removed(twin: Twin, **removal: Any) -> tuple[tuple[str, ...], list[str]]:
    lines: list[str] = []
    patience = patient(Pulse(renewing(twin.api.cluster)))
    wanted = Removal(patience=patience, **removal)
    return uninstall(cast("ClusterApi", twin), wanted, lines.append), lines


def test_a_leader_outside_is_reported_at_once_and_nothing_is_changed(twin: Twin) -> None:
    problems, lines = removed(twin)
    told, stopped = problems
    assert told == (
        f"Lease deferred-quota-system/deferred-quota-controller: {OUTSIDE} leads, and is no pod of"
        " deferred-quota-system: it would hide again what is completed in the opted-in namespaces"
        " team-a. Stop it first, or opt them out with --remove-labels"
    )
    assert stopped == "stopped here: nothing was changed; go on all the same with --force"
    assert lines == []
    assert twin.written == []


def test_a_lease_that_is_renewed_is_not_looked_at_for_longer(twin: Twin) -> None:
    pulse = Pulse(renewing(twin.api.cluster))
    assert looked(twin, pulse) == FOUND
    assert sum(pulse.slept) == 0.5


def test_a_dry_run_says_so_and_goes_on(twin: Twin) -> None:
    problems, lines = removed(twin, dry_run=True)
    assert problems == ()
    assert f"{OUTSIDE} leads" in lines[0]
    assert lines[0].endswith(
        "; this would stop here, and do what follows only after that, or with --force"
    )
    assert "MutatingAdmissionPolicy deferred-quota-mask: would be deleted" in lines
    assert twin.written == []


@pytest.mark.parametrize("option", ["removes_labels", "is_forced"])
def test_where_labels_go_or_it_is_forced_it_goes_on(twin: Twin, option: str) -> None:
    problems, _ = removed(twin, **{option: True})
    assert problems == ()
    assert twin.written[-1] == "delete Namespace deferred-quota-system"


def test_a_holder_of_the_lease_that_is_gone_is_in_no_way(twin: Twin) -> None:
    pulse = Pulse()
    assert looked(twin, pulse) is None
    assert 15 <= sum(pulse.slept) < 16


def test_a_lease_is_not_looked_at_for_as_long_as_a_client_wrote_into_it(twin: Twin) -> None:
    write_lease(twin, leaseDurationSeconds=86400)
    pulse = Pulse()
    assert looked(twin, pulse) is None
    assert sum(pulse.slept) <= 20


def test_a_holder_that_gives_the_lease_back_meanwhile_is_in_no_way(twin: Twin) -> None:
    pulse = Pulse(lambda: write_lease(twin, holderIdentity=""))
    assert looked(twin, pulse) is None


def test_another_controller_outside_that_takes_over_meanwhile_is_reported(twin: Twin) -> None:
    pulse = Pulse(lambda: write_lease(twin, holderIdentity="other-1-00000000"))
    assert looked(twin, pulse) == ("other-1-00000000", ("team-a",))


@pytest.mark.parametrize("is_first", [True, False])
def test_a_pod_of_the_deployment_that_leads_is_stopped_as_ever(twin: Twin, is_first: bool) -> None:
    add_controller(twin, "deferred-quota-controller-1")
    inside = a_lease()["spec"]["holderIdentity"]  # type: ignore[index]
    if is_first:
        write_lease(twin, holderIdentity=inside)
        assert looked(twin, pulse := Pulse(renewing(twin.api.cluster))) is None
        assert pulse.slept == []
    else:
        assert looked(twin, Pulse(lambda: write_lease(twin, holderIdentity=inside))) is None


def test_pods_that_stand_by_do_not_hide_a_leader_outside(twin: Twin) -> None:
    add_controller(twin, "deferred-quota-controller-1")
    assert looked(twin) == FOUND


def test_without_a_lease_or_a_holder_there_is_no_leader(twin: Twin) -> None:
    write_lease(twin, holderIdentity="")
    assert looked(twin) is None
    twin.api.delete(LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    assert looked(twin) is None


@pytest.mark.parametrize("mode", ["", "shadow", "deferrd"])
def test_where_nothing_is_opted_in_nothing_would_be_hidden(twin: Twin, mode: str) -> None:
    labels = {"deferredquota.io/mode": mode or None}
    twin.api.patch(NAMESPACES, "team-a", {"metadata": {"labels": labels}})
    assert looked(twin) is None


COMPLETE = a_quota("q", hard={"requests.cpu": "2"}, used={"requests.cpu": "1"})
UNMASKED: dict[str, tuple[Object, ...]] = {
    "no quota": (),
    "a complete one": (COMPLETE,),
    "one of no pods": (without_status(a_quota("q", hard={"configmaps": "2"})),),
    "one that is left to the API server": (
        without_status(
            a_quota("q", metadata={"annotations": {"deferredquota.io/exclude": "true"}})
        ),
    ),
}


@pytest.mark.parametrize("quotas", UNMASKED.values(), ids=UNMASKED)
def test_where_no_quota_is_masked_nothing_would_be_hidden(
    twin: Twin, quotas: tuple[Object, ...]
) -> None:
    twin.api.delete(RESOURCE_QUOTAS, "q", namespace="team-a")
    add_namespace(twin, "other", "")
    twin.api.create(RESOURCE_QUOTAS, without_status(a_quota("q", namespace="other")))
    twin.api.cluster.load([(RESOURCE_QUOTAS, quota) for quota in quotas])
    assert looked(twin) is None


@pytest.mark.parametrize("kind", [LEASES, PODS, NAMESPACES, RESOURCE_QUOTAS])
def test_a_user_that_may_not_look_finds_out_later(twin: Twin, kind: Kind) -> None:
    class Forbidding(Twin):
        def get(self, asked: Kind, name: str, **query: Any) -> Object:
            self.refuse(asked)
            return self.api.get(asked, name, **query)

        def list(self, asked: Kind, options: ListOptions = ALL) -> Any:
            self.refuse(asked)
            return self.api.list(asked, options)

        def refuse(self, asked: Kind) -> None:
            if asked == kind:
                raise ForbiddenError("you may not")

    forbidding = Forbidding()
    forbidding.api = twin.api
    assert looked(forbidding) is None
