"""Binds, through `pods/binding` and the older `bindings`."""

from __future__ import annotations

import pytest

from tests.builders import a_binding
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.tenant import NODE, REAL, Tenant, marked
from tests.e2e.cluster.waiting import becomes, eventually

BIND = 'admission webhook "bind.deferredquota.io" denied the request: '
STAMP = 'admission webhook "stamp.deferredquota.io" denied the request: '
NOBODY = "11111111-2222-3333-4444-555555555555"
GATE = {"schedulingGates": [{"name": "example.com/later"}]}

both_resources = pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])


@both_resources
def test_a_pod_is_charged_when_it_is_bound_and_not_before(tenant: Tenant, legacy: bool) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "5"})
    pod = tenant.pod("web", "1500m")
    assert (tenant.charged(), tenant.native()[1]) == ("0", {"pods": "1"})
    assert tenant.bind("web", uid=pod.uid, legacy=legacy).code == 201
    assert tenant.charged() == "1500m"
    tenant.settles()
    assert (tenant.used(), tenant.reserved()) == ({"requests.cpu": "1500m"}, {})
    assert tenant.native() == ({"pods": "5"}, {"pods": "1"})
    assert tenant.node_of("web") == NODE
    assert not marked(tenant.seen("web"))


@both_resources
def test_a_bind_without_uid_is_charged_too(tenant: Tenant, legacy: bool) -> None:
    tenant.quota()
    tenant.pod("web", "1500m")
    assert tenant.bind("web", legacy=legacy).code == 201
    assert tenant.charged() == "1500m"


@both_resources
def test_a_pod_of_the_most_annotations_can_be_changed_after_its_bind(
    tenant: Tenant, legacy: bool
) -> None:
    """Storage merges what a Binding brings, and only the next change of the pod is validated."""
    tenant.quota()
    most = {"example.com/a": "x" * (256 * 1024 - len("example.com/a"))}
    tenant.pod("web", "1", metadata={"annotations": most})
    assert tenant.bind("web", legacy=legacy).code == 201
    labels = {"metadata": {"labels": {"app": "web"}}}
    assert tenant.api.patch(objects.pods(tenant.namespace, "web"), labels).ok


@both_resources
def test_one_beyond_the_quota_is_refused_in_the_api_servers_words(
    tenant: Tenant, legacy: bool
) -> None:
    tenant.quota()
    tenant.bound("web", "1500m")
    more = tenant.pod("more", "1")
    refused = tenant.bind("more", uid=more.uid, legacy=legacy)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        f"{BIND}exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=1500m,"
        " limited: requests.cpu=2"
    )
    assert refused.causes == [
        ("QuotaExceeded", "p1/requests.cpu", "requested=1,used=1500m,limited=2")
    ]
    assert refused.body["details"]["name"] == "more"
    assert (tenant.charged(), tenant.node_of("more")) == ("1500m", "")
    assert not marked(tenant.seen("more"))


@both_resources
def test_a_dry_run_tells_the_truth_and_writes_nothing(tenant: Tenant, legacy: bool) -> None:
    tenant.quota()
    tenant.bound("web", "1500m")
    fits, more = tenant.pod("fits", "500m"), tenant.pod("more", "501m")
    before = tenant.rests()
    assert tenant.bind("fits", uid=fits.uid, legacy=legacy, dry_run=True).code == 201
    refused = tenant.bind("more", uid=more.uid, legacy=legacy, dry_run=True)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message.startswith(f"{BIND}exceeded quota: p1, requested: requests.cpu=501m,")
    assert tenant.ledger_version() == before
    assert tenant.node_of("fits") == ""


def test_an_assigned_pod_gets_the_words_of_storage_and_is_not_charged_again(
    tenant: Tenant,
) -> None:
    tenant.quota()
    pod = tenant.bound("web", "1")
    before = tenant.rests()
    refused = tenant.bind("web", uid=pod.uid)
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.message == (
        'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node'
        f' "{NODE}"'
    )
    assert (tenant.ledger_version(), tenant.charged()) == (before, "1")


@both_resources
def test_a_bind_of_another_uid_gets_the_words_of_storage(tenant: Tenant, legacy: bool) -> None:
    tenant.quota()
    tenant.pod("web", "1")
    refused = tenant.bind("web", uid=NOBODY, legacy=legacy)
    if legacy:  # it drops the uid before anyone looks: the bind is of the pod that is there
        assert refused.code == 201
        assert tenant.charged() == "1"
    else:
        assert (refused.code, refused.reason) == (409, "Conflict")
        assert "Precondition failed: UID in precondition: 11111111" in refused.message
        assert (tenant.charged(), tenant.promised()) == ("0", [])


def test_a_pod_that_is_being_deleted_gets_the_words_of_storage(tenant: Tenant) -> None:
    tenant.quota()
    # more than the quota has: a webhook that has not seen the deletion yet refuses it as well
    pod = tenant.pod("web", "3", metadata={"finalizers": ["example.com/wait"]})
    tenant.delete("web")
    (refused,) = eventually(
        lambda: [one for one in [tenant.bind("web", uid=pod.uid)] if one.code != 403],
        "the deletion is seen",
    )
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert "pod web is being deleted, cannot be assigned to a host" in refused.message
    assert (tenant.charged(), tenant.promised()) == ("0", [])
    tenant.api.patch(objects.pods(tenant.namespace, "web"), {"metadata": {"finalizers": None}})


@both_resources
def test_a_pod_that_is_not_there_is_not_found(tenant: Tenant, legacy: bool) -> None:
    tenant.quota()
    for uid, webhook in (("", STAMP), (NOBODY, STAMP if legacy else BIND)):  # `bindings` drops it
        refused = tenant.bind("web", uid=uid, legacy=legacy)
        assert (refused.code, refused.reason) == (404, "NotFound")
        assert refused.message == f'{webhook}pods "web" not found'


NAMELESS = ("", "a/b", "..", "50%")


@pytest.mark.parametrize("name", NAMELESS)
def test_a_binding_that_names_no_pod_is_refused_for_good_in_the_words_of_storage(
    tenant: Tenant, plain: Tenant, name: str
) -> None:
    tenant.quota()
    expected = plain.bind(name, legacy=True)
    assert (expected.code, expected.reason) == (400, "BadRequest")
    refused = tenant.bind(name, legacy=True)
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert refused.message == f"{STAMP}{expected.message}"
    assert "retryAfterSeconds" not in refused.body.get("details", {})


def test_a_gated_pod_is_refused_and_charged_once_its_gate_is_gone(tenant: Tenant) -> None:
    tenant.quota()
    pod = tenant.pod("web", "3", **GATE)
    small = tenant.pod("small", "1", **GATE)
    refused = tenant.bind("web", uid=pod.uid)
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.message == f"{BIND}pod web has non-empty .spec.schedulingGates"
    for name in ("web", "small"):
        path = objects.pods(tenant.namespace, name)
        assert tenant.api.patch(path, {"spec": {"schedulingGates": None}}).ok
    assert tenant.bind("web", uid=pod.uid).code == 403
    assert tenant.bind("small", uid=small.uid).code == 201
    assert tenant.charged() == "1"


def test_a_bind_that_is_repeated_after_storage_refused_it_is_charged_once(tenant: Tenant) -> None:
    tenant.quota()
    pod = tenant.pod("web", "1500m")
    refused = tenant.bind("web", uid=pod.uid, version="1")
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert tenant.promised() == ["web"]
    assert tenant.bind("web", uid=pod.uid).code == 201
    assert tenant.charged() == "1500m"


def test_a_pod_that_names_nothing_is_refused_although_it_could_be_created(tenant: Tenant) -> None:
    pod = tenant.pod("web")
    tenant.quota()
    refused = tenant.bind("web", uid=pod.uid)
    assert refused.code == 403
    assert refused.message == f"{BIND}failed quota: p1: must specify requests.cpu for: main"


def test_the_scheduler_binds_what_fits_and_says_why_the_rest_waits(tenant: Tenant) -> None:
    tenant.quota()
    for number in range(3):
        tenant.pod(f"web-{number}", "1", schedulerName=REAL)
    names = {"web-0", "web-1", "web-2"}
    becomes(lambda: len({name for name in names if tenant.node_of(name)}), 2, "two are bound")
    (waits,) = (name for name in names if not tenant.node_of(name))
    said = eventually(
        lambda: tenant.condition(waits) if "exceeded" in tenant.condition(waits)[2] else None,
        "the pod says why it waits",
    )
    words = "requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2"
    blame = f'running Bind plugin "DefaultBinder": {BIND}exceeded quota: p1, {words}'
    assert said == ("False", "SchedulerError", blame)
    assert tenant.charged() == "2"
    tenant.finish(next(iter(names - {waits})))
    becomes(lambda: bool(tenant.node_of(waits)), True, "the pod that waited is bound")
    tenant.settles()
    assert tenant.charged() == "2"


@both_resources
def test_a_tenants_scheduler_writes_on_a_pod_what_users_may_write(
    plane: ControlPlane, tenant: Tenant, legacy: bool
) -> None:
    """Storage writes the labels and annotations of a Binding on the pod that it binds."""
    may_bind = ("--verb=create", "--resource=pods/binding,bindings", "-n", tenant.namespace)
    plane.kubectl("create", "role", "scheduler", *may_bind)
    to_whom = ("--role=scheduler", "--user=scheduler-of-tenant", "-n", tenant.namespace)
    plane.kubectl("create", "rolebinding", "scheduler", *to_whom)
    api = Api(plane.rest_as("scheduler-of-tenant", ()))
    tenant.quota()
    pod = tenant.pod("web", "1")
    path = f"/api/v1/namespaces/{tenant.namespace}/bindings"
    if not legacy:
        path = objects.pods(tenant.namespace, "web", "binding")

    def bind(**metadata: dict[str, str]) -> Answer:
        binding = a_binding("web", NODE, namespace=tenant.namespace, uid=pod.uid)
        return api.create(path, {**binding, "metadata": {**binding["metadata"], **metadata}})  # type: ignore[dict-item]

    for part, name in (
        ("labels", "nos.nebuly.com/capacity"),
        ("labels", "deferredquota.io/unevaluated"),
        ("annotations", "deferredquota.io/ungated"),
        ("annotations", "kubernetes.io/config.mirror"),
    ):
        refused = bind(**{part: {name: "x"}})
        assert refused.code == 403, str(refused)
        assert refused.message.startswith(f"{BIND}metadata.{part}[{name}]: may only be written by")
    assert bind(annotations={"example.com/mine": "x"}).code == 201
    assert tenant.seen("web").body["metadata"]["annotations"]["example.com/mine"] == "x"
