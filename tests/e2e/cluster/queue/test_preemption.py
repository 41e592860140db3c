"""No pod is evicted for one that its quota cannot let run, on a real control plane.

It runs on a control plane of its own, with one node, on which three pods of another namespace leave
room for one. A tenant with the rights of `edit` asks for a pod of a high class and of the whole
node: a scheduler that is let at it evicts all three.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.builders import a_container, a_pod
from tests.controlplane.features import RESIZE
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.configured import configured
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import REAL, Tenant, edited_by_alice
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.state.well_known import SCHEDULING_GATE

HIGH = "above-all"
WHOLE_NODE = "4"
VICTIMS = ("a", "b", "c")
GATED = [{"name": SCHEDULING_GATE}]
SCHEDULING_SECONDS = 3.0
"""What a scheduler takes at most to evict for a pod that it may try."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("preemption-plane")) as plane:
        plane.add_nodes(1, cpu=WHOLE_NODE)
        high = {"metadata": {"name": HIGH}, "value": 1_000_000}
        assert Api(plane.rest).create("/apis/scheduling.k8s.io/v1/priorityclasses", high).ok
        yield plane


@pytest.fixture(scope="module")
def own_product(
    own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    directory = tmp_path_factory.mktemp("preemption-product")
    settings = {"mustSpecify": "bind"}
    with Product.start(own_plane, directory, configuration=settings) as product:
        yield product


@pytest.fixture
def neighbour(own_plane: ControlPlane, own_product: Product) -> Iterator[Tenant]:
    """A namespace that has not opted in, whose pods have the node to themselves."""
    assert own_product.webhooks
    tenant = Tenant(own_plane.rest, f"neighbour-{next(_numbers)}")
    apply_namespace(tenant.api, tenant.namespace, mode="")
    for name in VICTIMS:
        tenant.pod(name, "1", schedulerName=REAL)
    for name in VICTIMS:
        eventually(lambda name=name: tenant.node_of(name), f"{name} runs")  # type: ignore[misc]
    yield tenant
    tenant.clear()


@pytest.fixture(params=["always", "auto"])
def team(
    own_plane: ControlPlane, own_product: Product, request: pytest.FixtureRequest
) -> Iterator[Tenant]:
    """A namespace whose pods are gated where there is no room; `alice` may edit it."""
    assert own_product.webhooks
    name = f"preemption-{next(_numbers)}"
    apply_namespace(Api(own_plane.rest), name, gating=request.param)
    tenant = Tenant(own_plane.rest, name)
    edited_by_alice(own_plane, tenant)
    yield tenant
    tenant.clear()


def asked_by_alice(
    plane: ControlPlane, team: Tenant, cpu: str = WHOLE_NODE, **fields: Any
) -> Answer:
    alice = Tenant(plane.rest_as("alice", ("devs",)), team.namespace)
    return alice.pod("web", cpu, schedulerName=REAL, priorityClassName=HIGH, **fields)


def says(team: Tenant) -> tuple[str, str, str]:
    return team.condition("web", QUOTA_RESERVED)


def evicted(neighbour: Tenant) -> list[str]:
    pods = {name: neighbour.seen(name) for name in VICTIMS}
    return [name for name, pod in pods.items() if "deletionTimestamp" in pod.body["metadata"]]


def waits_and_evicts_no_pod(made: Answer, team: Tenant, neighbour: Tenant) -> None:
    """Check that the pod stands behind the gate with a condition, and that no pod has to go."""
    eventually(lambda: says(team)[0] or evicted(neighbour), "it says why it waits")
    assert evicted(neighbour) == []
    assert made.body["spec"].get("schedulingGates") == GATED
    assert "nominatedNodeName" not in team.seen("web").body["status"]


NOTHING = {"requests": {"cpu": "0"}}
SMALL = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
FORGED: dict[str, dict[str, Any]] = {
    "it has ended": {"status": {"phase": "Succeeded"}},
    "its node refuses what it asks for": {
        "status": {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
            "containerStatuses": [
                {**SMALL, "resources": NOTHING, "allocatedResources": {"cpu": "0"}}
            ],
        }
    },
    "it should have been gone long ago": {
        "metadata": {
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 0,
        }
    },
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_what_a_client_says_of_a_new_pods_state_changes_nothing(
    own_plane: ControlPlane, team: Tenant, neighbour: Tenant, forged: dict[str, Any]
) -> None:
    team.quota(hard={"requests.cpu": "2"})
    made = asked_by_alice(own_plane, team, **forged)
    waits_and_evicts_no_pod(made, team, neighbour)
    becomes(lambda: says(team)[1], "NeverFits", "why it waits")


@contextmanager
def unasked(api: Api, entry: str) -> Iterator[None]:
    """Take an entry out of the registration, as if it never answered: its policy is Ignore."""
    path = f"{objects.REGISTRATIONS}/deferred-quota"
    before = api.get(path).body["webhooks"]
    left = [webhook for webhook in before if webhook["name"] != entry]
    assert len(left) == len(before) - 1
    assert api.patch(path, {"webhooks": left}).ok
    try:
        yield
    finally:
        assert api.patch(path, {"webhooks": before}).ok


def test_one_that_cannot_be_read_waits_where_no_handler_refuses_it(
    own_plane: ControlPlane, team: Tenant, neighbour: Tenant
) -> None:
    """The API server stores such an amount, and the scheduler does not look at limits."""
    team.quota(hard={"requests.cpu": "2"})
    odd: dict[str, Any] = {
        "requests": {"cpu": WHOLE_NODE, "memory": "1"},
        "limits": {"memory": "1e400"},
    }
    with unasked(team.api, "shape.deferredquota.io"):
        eventually(lambda: team.create("odd", dry_run=True, **odd).ok, "it may be created")
        made = asked_by_alice(own_plane, team, **odd)
        waits_and_evicts_no_pod(made, team, neighbour)
        becomes(lambda: says(team)[1], "NeverFits", "why it waits")


@pytest.mark.parametrize("hard", [{}, {"pods": "9"}], ids=["no quota", "a quota of pods"])
def test_one_that_cannot_be_counted_waits_also_where_no_quota_is_deferred(
    own_plane: ControlPlane, team: Tenant, neighbour: Tenant, hard: dict[str, str]
) -> None:
    if hard:
        team.quota(hard=hard, is_deferred=False)
    odd: dict[str, Any] = {"requests": {"cpu": WHOLE_NODE}, "limits": {"cpu": "1e37"}}
    made = asked_by_alice(own_plane, team, **odd)
    waits_and_evicts_no_pod(made, team, neighbour)
    words = "spec.containers[0].resources.limits.cpu is too large to be counted"
    expected = ("False", "NeverFits", f"the pod can never fit; {words}")
    becomes(lambda: says(team), expected, "why it waits")


def test_one_that_does_not_name_what_is_limited_waits_until_it_need_not(
    own_plane: ControlPlane, team: Tenant, neighbour: Tenant
) -> None:
    team.quota(hard={"requests.memory": "1Gi"})
    made = asked_by_alice(own_plane, team)
    waits_and_evicts_no_pod(made, team, neighbour)
    missing = "failed quota: p1: must specify requests.memory for: main"
    becomes(lambda: says(team), ("False", "MustSpecify", missing), "why it waits")
    for name in VICTIMS:
        neighbour.delete(name)
    team.edit_quota("p1", {"hard": {"requests.memory": None, "requests.cpu": WHOLE_NODE}})
    eventually(lambda: team.node_of("web"), "it runs, now that the quota is about cpu")


def test_one_that_needs_a_quota_waits_for_it(
    own_plane: ControlPlane, own_product: Product, team: Tenant, neighbour: Tenant
) -> None:
    needed = [{"resource": "pods", "matchContains": ["requests.cpu"]}]
    with configured(own_product, limitedResources=needed):
        made = asked_by_alice(own_plane, team)
        waits_and_evicts_no_pod(made, team, neighbour)
        missing = "insufficient quota to consume: requests.cpu"
        becomes(lambda: says(team), ("False", "NotCovered", missing), "why it waits")
        for name in VICTIMS:
            neighbour.delete(name)
        team.quota(hard={"requests.cpu": WHOLE_NODE})
        eventually(lambda: team.node_of("web"), "it runs, now that there is a quota")


@pytest.mark.needs(RESIZE)
def test_one_that_was_let_through_changes_only_within_its_quotas(
    own_plane: ControlPlane, team: Tenant
) -> None:
    """It waits for a claim that its owner makes when the change is done, and would evict then."""
    team.quota(hard={"requests.cpu": "10"}, scopes=["NotTerminating"])
    team.quota("p2", hard={"requests.cpu": "0"}, scopes=["Terminating"])
    lacks = {"name": "data", "persistentVolumeClaim": {"claimName": "comes-later"}}
    asked_by_alice(own_plane, team, volumes=[lacks])
    eventually(
        lambda: not team.seen("web").body["spec"].get("schedulingGates"), "it is let through"
    )
    moved, grown = team.set_deadline("web", 5000), team.resize("web", "11")
    assert [moved.code, grown.code] == [403, 403], f"{moved}, {grown}"


def test_pods_that_no_scheduler_takes_leave_room_for_binds_and_have_new_ones_gated(
    own_plane: ControlPlane, own_product: Product, team: Tenant, neighbour: Tenant
) -> None:
    """A ledger that they fill would put off each bind of the pod, for which others are evicted."""
    team.quota(hard={"requests.cpu": "100"})
    with configured(own_product, limits={"reservationsPerNamespace": 8}):
        for number in range(8):
            team.pod(f"nobody-{number}", "1m", schedulerName="nobody", schedulingGates=GATED)
        becomes(lambda: _reservations(team), 6, "pods that are reserved for")
        made = asked_by_alice(own_plane, team)
        waits_and_evicts_no_pod(made, team, neighbour)
        assert gone(neighbour) == []
        assert _reservations(team) == 6


def _reservations(team: Tenant) -> int:
    return len(team.ledger().get("reservations", "").splitlines())


NESTED = 1_500
"""Levels of what a client says of managed fields; the API server stores up to 10,000."""
DEEP = '{"f:a":' * NESTED + "{}" + "}" * NESTED
NO_TEXT = '{"f:\xff":{}}'
"""The API server stores the byte, which is no UTF-8, and passes it on."""
LARGE = 1_300_000
"""Characters of which the API server makes six each in a review."""


def posted(
    plane: ControlPlane,
    team: Tenant,
    metadata: dict[str, Any] | None = None,
    text: str = "",
    query: str = "",
) -> tuple[int, bytes]:
    """Send the pod of alice with a value in its environment; `DEEP` and `NO_TEXT` are JSON."""
    main = a_container(requests={"cpu": WHOLE_NODE})
    main["env"] = [{"name": "TEXT", "value": text}]
    pod = a_pod(main, name="web", namespace=team.namespace, priorityClassName=HIGH)
    pod["metadata"] = {"name": "web", **(metadata or {})}
    sent = json.dumps(pod, ensure_ascii=False)
    for fields in (DEEP, NO_TEXT):
        sent = sent.replace(json.dumps(fields, ensure_ascii=False), fields)
    body = sent.encode("latin-1")
    return plane.rest_as("alice", ("devs",)).call(
        "POST", objects.pods(team.namespace) + query, body
    )


def gone(neighbour: Tenant) -> list[str]:
    """Return who was evicted within the time that a scheduler takes at most."""
    deadline = time.monotonic() + SCHEDULING_SECONDS
    while time.monotonic() < deadline and not evicted(neighbour):
        time.sleep(0.1)
    return evicted(neighbour)


@pytest.mark.parametrize("fields", [DEEP, NO_TEXT], ids=["deep", "no text"])
def test_odd_managed_fields_keep_the_gate_on_and_the_product_running(
    own_plane: ControlPlane, team: Tenant, neighbour: Tenant, fields: str
) -> None:
    team.quota(hard={"requests.cpu": "2"})
    other = Tenant(own_plane.rest, f"{team.namespace}-other")
    apply_namespace(other.api, other.namespace)
    other.quota(hard={"requests.cpu": "2"})
    owner = {
        "manager": "m", "operation": "Apply", "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
    }  # fmt: skip
    code, answer = posted(own_plane, team, {"managedFields": [owner]})
    try:
        assert code == 201
        assert f'"schedulingGates":[{{"name":"{SCHEDULING_GATE}"}}]'.encode() in answer
        alice = Api(own_plane.rest_as("alice", ("devs",)))
        removal = {"spec": {"schedulingGates": None}}
        refused = alice.patch(objects.pods(team.namespace, "web"), removal)
        assert (refused.code, "marks.deferredquota.io" in refused.message) == (403, True), refused
        assert gone(neighbour) == []
        other.bound("binds", "1")
    finally:  # no answer may show it: json nests no deeper
        delete = ("DELETE", objects.pods(team.namespace, "web"), b'{"gracePeriodSeconds":0}')
        assert own_plane.rest.call(*delete)[0] == 200
        other.clear()


def test_a_pod_that_is_too_large_for_a_review_is_refused(
    own_plane: ControlPlane, team: Tenant
) -> None:
    team.quota(hard={"requests.cpu": "2"})

    def answered() -> tuple[int, bool]:
        code, answer = posted(own_plane, team, text="<" * LARGE, query="?dryRun=All")
        return code, b"gate.deferredquota.io" in answer

    # a machine may be too busy to send that much within the time of a call
    becomes(answered, (413, True), "the answer")


def test_a_pod_that_is_too_large_for_a_review_of_its_change_keeps_its_gate(
    own_plane: ControlPlane, team: Tenant, neighbour: Tenant
) -> None:
    team.quota(hard={"requests.cpu": "2"})
    assert posted(own_plane, team, text="<" * (LARGE // 2))[0] == 201
    alice = Api(own_plane.rest_as("alice", ("devs",)))
    removal = {"spec": {"schedulingGates": None}}
    refused = alice.patch(objects.pods(team.namespace, "web"), removal)
    assert (refused.code, "marks.deferredquota.io" in refused.message) == (413, True), refused
    assert gone(neighbour) == []
