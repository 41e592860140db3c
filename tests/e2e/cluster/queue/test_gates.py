"""Pods wait behind our gate, and only some may take it off.

Most pods here are larger than their quota, so that nothing ever reserves for them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from tests.builders import a_container
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer
from tests.e2e.cluster.product import Product, a_team
from tests.e2e.cluster.tenant import NODE, Tenant, edited_by_alice
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cli import ExitCode, cli
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.state.well_known import (
    DEFAULT_NAMESPACE,
    GUARDED_ANNOTATION,
    SCHEDULING_GATE,
    UNEVALUATED_LABEL,
    UNGATED_ANNOTATION,
    controller_user,
)

OURS, FOREIGN = {"name": SCHEDULING_GATE}, {"name": "example.com/hold"}
TAKE_OFF = {"spec": {"schedulingGates": None}}
LARGE = "3"
"""More than the quota of 2 cpu."""

_numbers = itertools.count()


@pytest.fixture(params=["always", ""], ids=["gating always", "no label"])
def paced(
    plane: ControlPlane, product: Product, request: pytest.FixtureRequest
) -> Iterator[Tenant]:
    with a_paced_namespace(plane, product, request.param) as tenant:
        yield tenant


@pytest.fixture
def team(plane: ControlPlane, product: Product) -> Iterator[Tenant]:
    """A namespace whose pods are gated, with a quota of 2 cpu."""
    with a_paced_namespace(plane, product, "always") as tenant:
        tenant.quota()
        yield tenant


@pytest.fixture
def spared(plane: ControlPlane, product: Product) -> Iterator[Tenant]:
    """A namespace whose pods need no gate while there is room, with a quota of 4 cpu."""
    with a_paced_namespace(plane, product, "auto") as tenant:
        tenant.quota(hard={"requests.cpu": "4"})
        has_room(tenant)
        yield tenant


@pytest.fixture
def alice(plane: ControlPlane, team: Tenant) -> Tenant:
    return edited_by_alice(plane, team)


def a_paced_namespace(
    plane: ControlPlane, product: Product, gating: str
) -> AbstractContextManager[Tenant]:
    assert product.webhooks
    return a_team(plane, f"e2e-gates-{next(_numbers)}", gating=gating)


def gates(answer: Answer) -> Any:
    return answer.body["spec"].get("schedulingGates")


def notes(answer: Answer) -> dict[str, str]:
    found: dict[str, str] = answer.body["metadata"].get("annotations", {})
    return found


def has_room(tenant: Tenant) -> None:
    """Wait until the webhook knows of the quota and that nothing is used of it."""
    eventually(lambda: gates(tenant.create("first", "1m", dry_run=True)) is None, "there is room")


def change(tenant: Tenant, pod: str, patch: dict[str, Any]) -> Answer:
    return tenant.api.patch(objects.pods(tenant.namespace, pod), patch)


# -- who waits -----------------------------------------------------------------------------


def test_a_pod_that_a_quota_concerns_waits_behind_the_gate(paced: Tenant) -> None:
    paced.quota()
    made = paced.pod("web", LARGE)
    assert gates(made) == [OURS]
    assert paced.condition("web") == (
        "False",
        "SchedulingGated",
        "Scheduling is blocked due to non-empty scheduling gates",
    )
    bound = paced.bind("web", uid=made.uid)
    assert (bound.code, bound.reason) == (409, "Conflict")
    assert bound.message.endswith("pod web has non-empty .spec.schedulingGates")
    assert gates(paced.create("dry", LARGE, dry_run=True)) == [OURS]


def test_gates_of_others_stay_and_ours_comes_once(team: Tenant) -> None:
    both = [FOREIGN, OURS]
    assert gates(team.pod("theirs", LARGE, schedulingGates=[FOREIGN])) == both
    assert gates(team.pod("both", LARGE, schedulingGates=both)) == both
    assert gates(team.pod("none", LARGE, schedulingGates=None)) == [OURS]


def test_only_what_a_quota_concerns_is_gated(paced: Tenant) -> None:
    assert gates(paced.pod("before", "1")) is None
    paced.quota(hard={"requests.cpu": "2"}, scopes=["Terminating"])
    assert gates(paced.pod("long", LARGE)) is None
    assert gates(paced.pod("short", LARGE, activeDeadlineSeconds=9)) == [OURS]
    assert gates(paced.pod("pinned", "1", nodeName=NODE)) is None


def test_the_pods_of_workloads_wait(team: Tenant) -> None:
    labels = {"matchLabels": {"app": "web"}}
    spec = {"containers": [a_container(requests={"cpu": LARGE})]}
    template = {"metadata": {"labels": labels["matchLabels"]}, "spec": spec}
    replicas = {"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": labels}}
    replicas["spec"]["template"] = template  # type: ignore[index]
    path = f"/apis/apps/v1/namespaces/{team.namespace}/replicasets"
    assert team.api.create(path, replicas).ok

    def found() -> list[Any]:
        pods = team.api.get(objects.pods(team.namespace)).body["items"]
        return [pod["spec"].get("schedulingGates") for pod in pods]

    becomes(found, [[OURS], [OURS]], "the pods of the replica set are gated")


def test_what_the_namespace_gives_a_pod_counts(team: Tenant) -> None:
    limits = {"default": {"cpu": LARGE}, "defaultRequest": {"cpu": LARGE}, "type": "Container"}
    defaults = {"metadata": {"name": "defaults"}, "spec": {"limits": [limits]}}
    path = f"/api/v1/namespaces/{team.namespace}/limitranges"
    assert team.api.create(path, defaults).ok
    made = eventually(lambda: [one for one in [team.create("web")] if one.ok], "the defaults hold")
    assert gates(made[0]) == [OURS]


def test_without_gating_nothing_is_gated(tenant: Tenant) -> None:
    tenant.quota()
    made = tenant.pod("web", "1")
    assert gates(made) is None
    assert tenant.bind("web", uid=made.uid).code == 201
    assert "exceeded quota: p1" in tenant.bind("large", uid=tenant.pod("large", "2").uid).message


def test_while_no_webhook_answers_pods_are_created_and_not_bound(
    team: Tenant, product: Product
) -> None:
    for webhook in product.webhooks:
        webhook.kill()
    made = team.pod("web", LARGE)
    assert gates(made) is None
    assert team.bind("web", uid=made.uid).code == 500
    product.restore()
    refused = eventually(
        lambda: [one for one in [team.bind("web", uid=made.uid)] if one.code == 403], "it is asked"
    )
    assert "exceeded quota: p1, requested: requests.cpu=3" in refused[0].message


def test_others_that_hold_a_pod_are_reported(team: Tenant) -> None:
    kueue = {"labels": {"kueue.x-k8s.io/queue-name": "main"}}
    made = team.pod("web", "1", metadata=kueue)
    sign = "kueue.x-k8s.io/queue-name"
    assert made.warnings == (
        f"Kueue holds this pod for quota too ({sign}): it runs when both let it go",
    )


# -- who need not wait ---------------------------------------------------------------------


def test_with_ample_room_a_pod_needs_no_gate_and_is_charged_at_its_bind(spared: Tenant) -> None:
    made = spared.pod("web", "1")
    assert gates(made) is None
    assert list(notes(made)) == [UNGATED_ANNOTATION]
    assert made.warnings == ()
    assert spared.used() == {"requests.cpu": "0"}
    assert spared.bind("web", uid=made.uid).code == 201
    spared.settles()
    assert spared.used() == {"requests.cpu": "1"}


def test_what_is_on_its_way_counts_and_others_wait_in_their_turn(spared: Tenant) -> None:
    first = [spared.pod(name, "1") for name in ("a", "b")]
    assert [gates(made) for made in first] == [None, None]
    later = [spared.pod(name, "1") for name in ("c", "d", "e", "f")]
    assert [gates(made) for made in later] == [[OURS]] * 4
    assert [notes(made) for made in later] == [{}] * 4
    becomes(spared.promised, ["a", "b", "c", "d"], "what is reserved")
    becomes(lambda: gates(spared.seen("d")), None, "the gate of the last that fits")
    says = (
        "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=4,"
        " limited: requests.cpu=4; place 1 of 2"
    )
    becomes(lambda: spared.condition("e", QUOTA_RESERVED)[2], says, "what the next says")
    assert gates(spared.seen("f")) == [OURS]
    for name, made in zip("ab", first, strict=True):
        assert spared.bind(name, uid=made.uid).code == 201
    spared.finish("a")
    becomes(lambda: gates(spared.seen("e")), None, "the gate of the next")
    assert gates(spared.seen("f")) == [OURS]


def test_pods_that_are_refused_for_less_than_nothing_make_no_room(
    team: Tenant, alice: Tenant
) -> None:
    """The handler is asked about them before the API server looks at what they request."""
    label = {"metadata": {"labels": {objects.GATING_LABEL: "auto"}}}
    assert team.api.patch(f"/api/v1/namespaces/{team.namespace}", label).ok
    team.quota("p2", hard={"requests.memory": "1Gi"})
    memory = {"memory": "1Mi"}
    small = partial(alice.create, "first", "1m", requests=memory, dry_run=True)
    eventually(lambda: gates(small()) is None, "there is room")
    for number in range(4):  # both webhooks
        refused = alice.create(f"bad-{number}", "-1000", requests=memory)
        assert refused.code == 422
        assert "must be greater than or equal to 0" in refused.message
        assert gates(alice.pod(f"web-{number}", "2", requests=memory)) == [OURS]


@pytest.mark.parametrize("gating", ["always", "auto", "never"])
def test_forging_what_the_gate_handler_writes_spares_nothing(
    team: Tenant, alice: Tenant, gating: str
) -> None:
    label = {"metadata": {"labels": {objects.GATING_LABEL: gating}}}
    assert team.api.patch(f"/api/v1/namespaces/{team.namespace}", label).ok
    entry = "ungated" if gating == "never" else "shape"
    forged = {
        "annotations": {UNGATED_ANNOTATION: "true", "a": "b"},
        "labels": {UNEVALUATED_LABEL: "no"},
    }
    silent = a_container("main", requests={"memory": "1Mi"})
    for number, anybody in enumerate((team, alice)):
        made = anybody.pod(f"large-{number}", LARGE, metadata=forged)
        if gating != "never":
            assert (gates(made), notes(made)) == ([OURS], {"a": "b"})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}
        owned = {**forged, "ownerReferences": [{**owner, "controller": True}]}
        for metadata in (forged, owned):
            refused = anybody.create("silent", "", silent, metadata=metadata)
            assert refused.code == 403
            assert refused.message == (
                f'admission webhook "{entry}.deferredquota.io" denied the request:'
                " failed quota: p1: must specify requests.cpu for: main"
            )


# -- who may take it off -------------------------------------------------------------------


def test_a_tenant_may_not_take_the_gate_off(team: Tenant, alice: Tenant) -> None:
    alice.pod("web", LARGE, schedulingGates=[FOREIGN])
    refused = change(alice, "web", TAKE_OFF)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        'admission webhook "marks.deferredquota.io" denied the request:'
        " spec.schedulingGates: deferredquota.io/quota may only be removed by deferred-quota or the"
        " group system:masters; it goes by itself when quota is reserved for the pod: make room in"
        " the quota, or take the namespace out of deferred quota:"
        f" deferred-quota disable {team.namespace}"
    )
    without = alice.seen("web").body
    without["spec"]["schedulingGates"] = [FOREIGN]
    assert alice.api.call("PUT", objects.pods(alice.namespace, "web"), without).code == 403
    without["spec"]["schedulingGates"] = [OURS]
    assert alice.api.call("PUT", objects.pods(alice.namespace, "web"), without).code == 200
    assert gates(alice.seen("web")) == [OURS]


MARKS = {
    "annotation": {"annotations": {GUARDED_ANNOTATION: "7"}},
    "let through": {"annotations": {UNGATED_ANNOTATION: "true"}},
    "label": {"labels": {"deferredquota.io/x": "y"}},
    "capacity": {"labels": {"nos.nebuly.com/capacity": "in-quota"}},
}
MAY_GO = {"let through", "capacity"}


@pytest.mark.parametrize("mark", MARKS)
def test_a_tenant_may_not_write_our_marks(team: Tenant, alice: Tenant, mark: str) -> None:
    metadata: dict[str, Any] = MARKS[mark]
    alice.pod("web", LARGE)
    refused = change(alice, "web", {"metadata": metadata})
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert "deferred-quota or the group system:masters: leave it as it is" in refused.message
    assert change(team, "web", {"metadata": metadata}).ok  # an administrator
    gone = {part: dict.fromkeys(keys) for part, keys in metadata.items()}
    other = {part: dict.fromkeys(keys, "other") for part, keys in metadata.items()}
    assert change(alice, "web", {"metadata": other}).code == 403
    assert change(alice, "web", {"metadata": metadata}).ok  # which changes nothing
    assert change(alice, "web", {"metadata": gone}).code == (200 if mark in MAY_GO else 403)


def test_other_updates_are_not_even_asked_about(
    team: Tenant, alice: Tenant, product: Product
) -> None:
    alice.pod("web", LARGE, metadata={"labels": {"app": "a"}, "annotations": {"a": "b"}})
    assert change(team, "web", {"metadata": {"annotations": {GUARDED_ANNOTATION: "7"}}}).ok
    before = product.metric("admission_requests_total", operation="UPDATE", phase="validating")
    assert before
    assert change(alice, "web", {"metadata": {"labels": {"app": None, "b": "c"}}}).ok
    assert change(alice, "web", {"metadata": {"annotations": {"a": "c"}}}).ok
    assert change(alice, "web", {"spec": {"nodeSelector": {"zone": "a"}}}).ok
    team.finish("web")
    after = product.metric("admission_requests_total", operation="UPDATE", phase="validating")
    assert after == before


def test_the_controller_takes_it_off_without_a_call(
    team: Tenant, plane: ControlPlane, product: Product
) -> None:
    made = team.pod("web", LARGE)
    before = product.metric("admission_requests_total", operation="UPDATE", phase="validating")
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": made.uid},
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": SCHEDULING_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    where = ("--namespace", team.namespace, f"--as={controller_user(DEFAULT_NAMESPACE)}")
    plane.kubectl("patch", "pod", "web", *where, "--type=json", "-p", json.dumps(patch))
    assert not gates(team.seen("web"))
    assert plane.kubectl("auth", "can-i", "patch", "pods/status", *where).strip() == "yes"
    after = product.metric("admission_requests_total", operation="UPDATE", phase="validating")
    assert after == before


def test_a_gate_that_an_administrator_takes_off_gives_no_quota(team: Tenant) -> None:
    made = team.pod("web", LARGE)
    assert change(team, "web", TAKE_OFF).ok  # an administrator of group system:masters
    refused = team.bind("web", uid=made.uid)
    assert refused.code == 403
    assert "exceeded quota: p1, requested: requests.cpu=3, used: requests.cpu=0" in refused.message


def test_a_copied_manifest_works_and_a_forged_one_does_not(alice: Tenant) -> None:
    copied = {"annotations": {GUARDED_ANNOTATION: "7"}, "labels": {"app": "web"}}
    made = alice.pod("copied", "1", metadata=copied)
    assert GUARDED_ANNOTATION not in made.body["metadata"].get("annotations", {})
    assert made.body["metadata"]["labels"] == {"app": "web"}
    field = "metadata.annotations[deferredquota.io/guarded]"
    assert made.warnings == (f"{field}: taken away, deferred-quota writes it itself",)
    forged = alice.create("forged", "1", metadata=copied, nodeName=NODE)
    assert (forged.code, forged.reason) == (403, "Forbidden")
    assert forged.message.endswith(
        f"{field}: may only be written by deferred-quota or the group system:masters: remove it"
        " from the manifest"
    )
    assert alice.create("pinned", "1", nodeName=NODE).ok


# -- the end -------------------------------------------------------------------------------


def test_an_administrator_outside_of_the_groups_opts_the_namespace_out(
    team: Tenant, plane: ControlPlane
) -> None:
    plane.kubectl(
        "create", "clusterrolebinding", "ops", "--clusterrole=cluster-admin", "--user=ops"
    )
    ops = Tenant(plane.rest_as("ops", ("admins",)), team.namespace)
    for number in range(20):
        team.pod(f"web-{number}", LARGE, schedulingGates=[FOREIGN] if number % 2 else None)
    assert change(ops, "web-0", TAKE_OFF).code == 403
    kubeconfig = str(plane.kubeconfig("ops", ("admins",)))
    done = CliRunner().invoke(cli, ["disable", "--kubeconfig", kubeconfig, team.namespace])
    assert done.exit_code == ExitCode.OK, done.output
    assert "opted out" in done.stdout  # the controller takes gates off, too: who did it is open
    left = [gates(team.seen(f"web-{number}")) or [] for number in range(20)]
    assert left == [[FOREIGN] if number % 2 else [] for number in range(20)]
    plane.kubectl("delete", "clusterrolebinding", "ops")


@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "released"])
def test_after_the_end_the_condition_of_what_waited_goes_and_that_of_the_others_stays(
    team: Tenant, plane: ControlPlane, *, is_bound: bool
) -> None:
    team.pod("fits", "1")
    team.pod("waits", LARGE)
    becomes(lambda: team.condition("fits", QUOTA_RESERVED)[0], "True", "quota is reserved", 30)
    becomes(lambda: team.condition("waits", QUOTA_RESERVED)[0], "False", "the other waits", 30)
    if is_bound:
        assert team.bind("fits").ok
    kubeconfig = str(plane.kubeconfig("admin", ("system:masters",)))
    done = CliRunner().invoke(cli, ["disable", "--kubeconfig", kubeconfig, team.namespace])
    assert done.exit_code == ExitCode.OK, done.output
    becomes(lambda: team.condition("waits", QUOTA_RESERVED)[0], "", "the condition goes", 60)
    assert team.condition("fits", QUOTA_RESERVED)[:2] == ("True", "Reserved")
