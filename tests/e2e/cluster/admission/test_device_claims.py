"""Devices of an extended resource that is deferred are to be had by the resource alone.

The API server charges claims of such a DeviceClass to the quota of the resource, by the quota's
status, in which the mask hides it: also those that a scheduler makes for pods that request devices
by the name of the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

import pytest

from tests.builders import a_container
from tests.controlplane.features import Gate
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import Product, apply
from tests.e2e.cluster.tenant import NODE, REAL, Tenant
from tests.e2e.cluster.waiting import eventually
from webhook.install import render
from webhook.operations.names import DEVICE_CLAIMS_POLICY

pytestmark = pytest.mark.needs(Gate("DRAExtendedResource"))

GROUP: Final = "/apis/resource.k8s.io/v1"
DEFERRED: Final = "deferred.example.com"
OTHERS: Final = ("plain.example.com", "counted.example.com")
RESOURCES: Final = {DEFERRED: "example.com/gpu", OTHERS[0]: None, OTHERS[1]: "example.com/nic"}
MARK: Final = {"resource.kubernetes.io/extended-resource-claim": "true"}


def policy(deferred: list[str]) -> list[Any]:
    identities: Any = render(url="https://127.0.0.1:1", deferred_resources=deferred).identities
    return [each for each in identities if each["metadata"]["name"] == DEVICE_CLAIMS_POLICY]


@pytest.fixture(scope="module")
def _deferred(plane: ControlPlane, _product: Product) -> Iterator[None]:
    admin = Api(plane.rest)
    for name, resource in RESOURCES.items():
        spec = {"extendedResourceName": resource} if resource else {}
        made = {"metadata": {"name": name}, "spec": spec}
        assert admin.create(f"{GROUP}/deviceclasses", made).ok
    apply(plane, policy(["requests.example.com/gpu"]))
    yield
    apply(plane, policy([]))
    for name in RESOURCES:
        admin.delete(f"{GROUP}/deviceclasses/{name}")


def user(plane: ControlPlane, namespace: str, name: str, *roles: str) -> Api:
    for role in roles:
        flags = (f"--clusterrole={role}", f"--user={name}", "-n", namespace)
        plane.kubectl("create", "rolebinding", f"{name}-{role.replace(':', '-')}", *flags)
    return Api(plane.rest_as(name, ()))


@pytest.fixture
def editor(plane: ControlPlane, tenant: Tenant, _deferred: None) -> Tenant:
    """A user with the role `edit`, once the policy is in force."""
    api = user(plane, tenant.namespace, "device-editor", "edit")
    eventually(lambda: ask(api, tenant.namespace, exactly(DEFERRED)).code == 403, "in force")
    eventually(lambda: ask(api, tenant.namespace, exactly(OTHERS[0])).ok, "the role is")
    return Tenant(api.rest, tenant.namespace)


def exactly(name: str) -> dict[str, Any]:
    return {"name": "d", "exactly": {"deviceClassName": name}}


def first_of(*names: str) -> dict[str, Any]:
    choices = [{"name": f"s{at}", "deviceClassName": one} for at, one in enumerate(names)]
    return {"name": "d", "firstAvailable": choices}


def ask(
    api: Api,
    namespace: str,
    *requests: dict[str, Any],
    template: bool = False,
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    spec: dict[str, Any] = {"devices": {"requests": list(requests)}}
    kind = "resourceclaimtemplates" if template else "resourceclaims"
    metadata = {"name": "c", "annotations": dict(annotations)}
    made = {"metadata": metadata, "spec": {"spec": spec} if template else spec}
    return api.create(f"{GROUP}/namespaces/{namespace}/{kind}", made, dry_run=True)


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize(
    "requests",
    [
        [exactly(DEFERRED)],
        [first_of(OTHERS[0], DEFERRED)],
        [exactly(OTHERS[0]), {**exactly(DEFERRED), "name": "e"}],
    ],
    ids=["one", "the second choice", "the second"],
)
def test_claims_of_what_is_deferred_are_refused(
    editor: Tenant, requests: list[dict[str, Any]], template: bool
) -> None:
    answer = ask(editor.api, editor.namespace, *requests, template=template)
    assert answer.code == 403, str(answer)
    assert f"claims of the DeviceClass {DEFERRED} are charged by no quota here" in answer.message
    assert "request example.com/gpu in the pod" in answer.message


def asking_for(name: str, *, init: bool = False) -> dict[str, Any]:
    resource = {f"deviceclass.resource.kubernetes.io/{name}": "3"}
    asks = a_container("asks", limits=resource)
    return {"init": [asks]} if init else {"containers": [a_container(), asks]}


@pytest.mark.parametrize("init", [False, True], ids=["a container", "an init container"])
def test_pods_that_ask_for_it_by_the_class_are_refused(editor: Tenant, init: bool) -> None:
    for marks in ({}, dict(MARK)):  # that of a scheduler's claim changes nothing
        asked = asking_for(DEFERRED, init=init)
        answer = editor.create("p", dry_run=True, metadata={"annotations": marks}, **asked)
        assert answer.code == 403, str(answer)
        assert (
            f"deviceclass.resource.kubernetes.io/{DEFERRED} is charged by no quota here, because"
            " requests.example.com/gpu is charged at the bind: request example.com/gpu"
        ) in answer.message


@pytest.mark.parametrize("kind", ["containers", "init"])
def test_pods_of_very_many_containers_are_refused_without_a_look(
    editor: Tenant, plain: Tenant, kind: str
) -> None:
    """The API server takes time by the square of their number for that."""

    def created(tenant: Tenant, count: int) -> Answer:
        asked: Any = {kind: [a_container(f"c{number}") for number in range(count)]}
        return tenant.create("p", dry_run=True, **asked)

    assert created(plain, 129).ok
    assert created(editor, 128).ok
    answer = created(editor, 129)
    assert answer.code == 403, str(answer)
    assert (
        "a pod of more than 128 containers is not looked through for"
        f" deviceclass.resource.kubernetes.io/{DEFERRED}, which is charged by no quota here"
    ) in answer.message


@pytest.mark.parametrize(
    ("claim", "is_refused"),
    [
        ("web-extended-resources-x7bq2", True),
        ("x" * 58 + "x7bq2", True),
        ("x" * 57 + "x7bq2", False),
        ("extended-resources", False),
        ("web-extended-resources-x7bq2-own", False),
    ],
    ids=["a scheduler's", "of a long name", "a long one", "another", "one more"],
)
def test_pods_that_name_a_claim_as_a_scheduler_makes_it_are_refused(
    editor: Tenant, plain: Tenant, claim: str, is_refused: bool
) -> None:
    """It is reserved for no other pod, which a scheduler learns after it has evicted others."""
    claims = [
        {"name": "a", "resourceClaimTemplateName": claim},
        {"name": "b", "resourceClaimName": claim},
    ]
    named: dict[str, Any] = {"resourceClaims": claims}
    answer = editor.create("p", dry_run=True, **named)
    assert answer.ok is not is_refused, str(answer)
    if is_refused:
        assert answer.code == 403
        assert f"ResourceClaim {claim}" in answer.message
        assert "request example.com/gpu in the pod" in answer.message
    assert plain.create("p", dry_run=True, **named).ok


def test_pods_that_ask_for_others_by_the_class_are_left_alone(
    editor: Tenant, plain: Tenant
) -> None:
    for name in OTHERS:
        answer = editor.create("p", dry_run=True, **asking_for(name))
        assert answer.ok, str(answer)
    gpu = {"example.com/gpu": "3"}
    answer = editor.create("p", dry_run=True, requests=gpu, limits=gpu)
    assert answer.ok, str(answer)
    assert plain.create("p", dry_run=True, **asking_for(DEFERRED)).ok


def test_other_claims_and_other_namespaces_are_left_alone(
    plane: ControlPlane, editor: Tenant, plain: Tenant
) -> None:
    for name in OTHERS:
        answer = ask(editor.api, editor.namespace, exactly(name))
        assert answer.ok, str(answer)
    api = user(plane, plain.namespace, "device-editor", "edit")
    eventually(lambda: ask(api, plain.namespace, exactly(DEFERRED)).ok, "it is no tenant")


def test_a_scheduler_makes_claims_for_pods_that_ask_for_the_resource(
    plane: ControlPlane, editor: Tenant
) -> None:
    marked = ask(editor.api, editor.namespace, exactly(DEFERRED), annotations=MARK)
    assert marked.code == 403, "an annotation is not enough"
    binder = user(plane, editor.namespace, "device-binder", "edit", "system:kube-scheduler")
    eventually(lambda: ask(binder, editor.namespace, exactly(OTHERS[0])).ok, "the role is")
    marked = ask(binder, editor.namespace, exactly(DEFERRED), annotations=MARK)
    assert marked.code == 403, "one that binds the pods of one namespace is a tenant"
    scheduler = user(plane, editor.namespace, "device-scheduler", "edit")
    flags = ("--clusterrole=system:kube-scheduler", "--user=device-scheduler")
    plane.kubectl("create", "clusterrolebinding", "device-scheduler", *flags)
    eventually(
        lambda: ask(scheduler, editor.namespace, exactly(DEFERRED), annotations=MARK).ok, "allowed"
    )
    assert ask(scheduler, editor.namespace, exactly(DEFERRED)).code == 403


@pytest.fixture
def _devices(plane: ControlPlane, _deferred: None) -> Iterator[None]:
    """Devices of the class that is deferred, on a node."""
    admin, slices = Api(plane.rest), f"{GROUP}/resourceslices"
    spec = {
        "driver": "gpu.example.com",
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"d{number}"} for number in range(3)],
    }
    assert admin.create(slices, {"metadata": {"name": "devices"}, "spec": spec}).ok
    yield
    admin.delete(f"{slices}/devices")


@contextmanager
def before_it_was_deferred(plane: ControlPlane, editor: Tenant) -> Iterator[None]:
    """Make objects while the resource is not deferred."""

    def asks() -> Answer:
        return ask(editor.api, editor.namespace, exactly(DEFERRED))

    apply(plane, policy([]))
    eventually(lambda: asks().ok, "nothing is deferred")
    yield
    apply(plane, policy(["requests.example.com/gpu"]))
    eventually(lambda: asks().code == 403, "in force again")


@pytest.mark.usefixtures("_devices")
def test_no_other_pod_shares_the_claim_that_a_scheduler_makes(
    plane: ControlPlane, editor: Tenant
) -> None:
    admin, namespace = Tenant(plane.rest, editor.namespace), editor.namespace
    claims = f"{GROUP}/namespaces/{namespace}/resourceclaims"
    gpu = {"example.com/gpu": "1"}

    def claim() -> Any:
        return next(iter(admin.api.get(claims).body["items"]), None)

    assert editor.create("charged", requests=gpu, limits=gpu, schedulerName=REAL).ok
    eventually(lambda: admin.node_of("charged"), "it gets a device")
    made = claim()
    name = made["metadata"]["name"]

    def share(**fields: Any) -> Answer:
        sharing = a_container(resources={"claims": [{"name": "z"}]})
        named = [{"name": "z", "resourceClaimName": name}]
        return editor.create("sharer", "", sharing, resourceClaims=named, **fields)

    with before_it_was_deferred(plane, editor):
        hold = [{"name": "example.com/hold"}]
        assert share(schedulerName=REAL, schedulingGates=hold).ok
    path = objects.pods(namespace, "sharer")
    assert admin.api.patch(path, {"spec": {"schedulingGates": None}}).ok
    said = f"ResourceClaim {name} is for the pod that it was made for"
    eventually(lambda: said in str(admin.condition("sharer")), "it does not share")
    uid = admin.seen("sharer").uid
    owner = {**made["metadata"]["ownerReferences"][0], "name": "sharer", "uid": uid}
    for metadata in (
        {"annotations": {next(iter(MARK)): None}},
        {"annotations": None},
        {"ownerReferences": [owner]},
        {"ownerReferences": None},
        {"finalizers": None},
        {"finalizers": [*made["metadata"]["finalizers"], "example.com/stays"]},
    ):
        answer = editor.api.patch(f"{claims}/{name}", {"metadata": metadata})
        assert answer.code == 403, str(answer)
        assert "say which pod is charged for its devices" in answer.message
    assert editor.api.patch(f"{claims}/{name}", {"metadata": {"labels": {"a": "b"}}}).ok
    for path in (f"{claims}/{name}", claims):  # the request for a collection has no name
        answer = editor.api.delete(path)
        assert answer.code == 403, str(answer)
        assert f"ResourceClaim {name} goes with the pod that it was made for" in answer.message
        in_foreground = {"propagationPolicy": "Foreground"}
        assert admin.api.call("DELETE", path, in_foreground).code == 403
    admin.delete("charged")
    eventually(lambda: claim() is None, "it goes, and its device is freed")
    assert admin.node_of("sharer") == ""


@pytest.mark.usefixtures("_devices")
def test_a_claim_that_only_has_a_schedulers_annotation_is_the_tenants(
    plane: ControlPlane, editor: Tenant
) -> None:
    """A pod that names it would otherwise be refused when others were evicted for it."""
    admin, namespace = Tenant(plane.rest, editor.namespace), editor.namespace
    claims = f"{GROUP}/namespaces/{namespace}/resourceclaims"
    made = {"metadata": {"name": "own"}, "spec": {"devices": {"requests": [exactly(DEFERRED)]}}}
    with before_it_was_deferred(plane, editor):
        assert admin.api.create(claims, made).ok
    assert editor.api.patch(f"{claims}/own", {"metadata": {"annotations": dict(MARK)}}).ok
    named = [{"name": "z", "resourceClaimName": "own"}]
    using = a_container(resources={"claims": [{"name": "z"}]})
    assert editor.create("user", "", using, resourceClaims=named, schedulerName=REAL).ok
    eventually(lambda: admin.node_of("user"), "it has its device")
