"""Which feature gates of Jobs an API server has, found out by the webhook's own rights, and told.

The gates are nowhere said to the webhook: `jobGates` is `Auto`, and it runs as it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.job_states import jobs, put
from tests.e2e.cluster.job_words import (
    DIRECTIVES,
    FIXED,
    GROW,
    GROWN,
    MOVE,
    MOVED,
    NO_RESOURCES,
    NO_SCHEDULING,
    NOT_SUSPENDED,
    ONE_ACTIVE,
    OURS,
    RAN,
    RESIZES,
    RESOURCES,
    RUNNING,
    SCHEDULING,
    said,
    stored,
)
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import SYSTEM, Product, apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes
from tests.quota.job_updates import Change, updated
from webhook.cluster.api import JOBS, ForbiddenError
from webhook.cluster.live import LiveClient, load_access
from webhook.quota.jobs import JobGate
from webhook.state.job_gates import PROBE, tried_gates

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Gated:
    """A control plane with some gates on, and the product on it."""

    plane: ControlPlane
    product: Product
    tenant: Tenant
    on: frozenset[str]

    def webhook(self) -> LiveClient:
        """A client with the rights of the webhook that is installed."""
        path = self.plane.service_account_kubeconfig(SYSTEM, "deferred-quota-webhook")
        return LiveClient(load_access(path, environ={}))


SETTINGS: Final = {
    "resources only": frozenset({RESOURCES}),
    "scheduling only": frozenset({SCHEDULING}),
    "no gates": frozenset[str](),
}


@pytest.fixture(params=list(SETTINGS.values()), ids=list(SETTINGS), scope="module")
def gated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gated]:
    gates = {str(gate): gate in request.param for gate in JobGate}
    directory = tmp_path_factory.mktemp("gated")
    with (
        ControlPlane.start(directory / "plane", scheduler=False, feature_gates=gates) as plane,
        Product.start(plane, directory / "product") as product,
    ):
        apply_namespace(Api(plane.rest), "team-a")
        on = frozenset(map(str, request.param))
        yield Gated(plane, product, Tenant(plane.rest, "team-a"), on)


HIDDEN: Final = {
    "labels": f'spec.template.metadata: {FIXED}: labels.team from none to "x"',
    "annotations": f"spec.template.metadata: {FIXED}: annotations.note another value",
}
"""What the API server lets slip through, and no rule of the cluster allows."""


def test_gates_that_are_off_are_found_out_and_named(gated: Gated) -> None:
    tenant = gated.tenant
    old = stored(tenant, RAN, name="ran")

    def outcome(change: Change) -> str:
        answer = put(tenant.api, updated(old, change))
        return "" if answer.ok else answer.message

    resized = "" if RESOURCES in gated.on else f"{OURS}{GROWN}: {NO_RESOURCES}"
    becomes(lambda: outcome(GROW), resized, "the resources change, or the gate is named")
    for change, field in RESIZES.values():
        assert outcome(change) == (resized and f"{OURS}{field}: {NO_RESOURCES}")
    is_on = SCHEDULING in gated.on
    for name, (change, field) in DIRECTIVES.items():
        refusal = f"{field}: {NO_SCHEDULING}"
        if RESOURCES in gated.on:  # then the API server does not compare the template's metadata
            refusal = HIDDEN.get(name, refusal)
        assert outcome(change) == ("" if is_on else f"{OURS}{refusal}")


def test_what_another_gate_decides_is_as_ever(gated: Gated) -> None:
    tenant = gated.tenant
    becomes(lambda: knows(gated), True, "the webhook has tried the gates")
    running = stored(tenant, RUNNING, suspend=False)
    reason = NOT_SUSPENDED.format(ns="team-a")
    resizing = reason if RESOURCES in gated.on else NO_RESOURCES
    assert said(tenant, running, GROW) == f"{GROWN}: {resizing}"
    moving = reason if SCHEDULING in gated.on else NO_SCHEDULING
    assert said(tenant, running, MOVE) == f"{MOVED}: {moving}"
    begun = stored(tenant, {"active": 1}, name="begun")
    if SCHEDULING in gated.on:
        waiting = ONE_ACTIVE.format(ns="team-a").replace("train", "begun")
        assert said(tenant, begun, MOVE) == f"{MOVED}: {waiting}"
    else:
        assert put(tenant.api, updated(begun, MOVE)).ok, "open until it has started"


def knows(gated: Gated) -> bool:
    """Whether the webhook has tried the gates: it names the one that is off."""
    name = "probing"
    path = jobs("team-a", name)
    if not gated.tenant.api.get(path).ok:
        stored(gated.tenant, RAN, name=name)
    old = gated.tenant.api.get(path).body
    changes = (GROW, MOVE)
    messages = [put(gated.tenant.api, updated(old, change)).message for change in changes]
    return any("feature gate" in message for message in messages)


def test_the_rights_of_the_webhook_suffice_and_are_no_more(gated: Gated) -> None:
    client = gated.webhook()
    try:
        assert tried_gates(client) == gated.on
        other = {"metadata": {"name": "other", "namespace": SYSTEM}, "spec": {}}
        with pytest.raises(ForbiddenError):
            client.create(JOBS, other, dry_run=True)
        with pytest.raises(ForbiddenError):
            client.patch(JOBS, "other", {"spec": {"suspend": False}}, namespace=SYSTEM)
        with pytest.raises(ForbiddenError):
            client.patch(JOBS, PROBE, {"spec": {}}, namespace="team-a")
        with pytest.raises(ForbiddenError):
            client.delete(JOBS, PROBE, namespace=SYSTEM)
    finally:
        client.close()
    probe = gated.tenant.api.get(jobs(SYSTEM, PROBE)).body
    assert probe["spec"]["suspend"] is True
    assert "nodeSelector" not in probe["spec"]["template"]["spec"]
    assert not gated.tenant.api.get(f"/api/v1/namespaces/{SYSTEM}/pods").body["items"]


def test_without_the_right_nothing_is_refused_that_some_setting_allows(gated: Gated) -> None:
    tenant, (webhook,) = gated.tenant, gated.product.webhooks
    binding = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/rolebindings"
    name = "deferred-quota-webhook"
    kept = tenant.api.get(f"{binding}/{name}").body
    assert tenant.api.delete(f"{binding}/{name}").ok
    webhook.restart()
    try:
        becomes(lambda: knows(gated), False, "gates are not known")
        ran = stored(tenant, RAN, name="unknown-ran")
        begun = stored(tenant, {"active": 1}, name="unknown-begun")
        for old, change, is_legal in (
            (ran, GROW, RESOURCES in gated.on),
            (ran, MOVE, SCHEDULING in gated.on),
            (begun, MOVE, SCHEDULING not in gated.on),
        ):
            answer = put(tenant.api, updated(old, change))
            assert answer.ok == is_legal, str(answer)
            assert OURS not in answer.message
        running = stored(tenant, RUNNING, suspend=False, name="unknown-running")
        reason = NOT_SUSPENDED.format(ns="team-a").replace("train", "unknown-running")
        assert said(tenant, running, GROW) == f"{GROWN}: {reason}"
    finally:
        kept["metadata"] = {"name": name, "labels": kept["metadata"]["labels"]}
        assert tenant.api.create(binding, kept).ok
        webhook.restart()


def test_both_gates_are_found_to_be_on(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    client = Gated(plane, product, tenant, frozenset()).webhook()
    try:
        assert tried_gates(client) == {RESOURCES, SCHEDULING}
    finally:
        client.close()
