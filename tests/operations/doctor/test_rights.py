from __future__ import annotations

from typing import Any

import pytest

from tests.operations.healthy import examined, healthy, ids, remove, serious, the
from tests.operations.scenes import NAMESPACE, Object, load
from webhook.kube.kinds import Kind
from webhook.operations.findings import Subject
from webhook.operations.names import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from webhook.state.well_known import DEFAULT_NAMESPACE

RBAC = "rbac.authorization.k8s.io/v1"


def a_role(name: str, *rules: Object, kind: str = "ClusterRole", namespace: str = "") -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": RBAC, "kind": kind, "metadata": metadata, "rules": list(rules)}


def a_rule(verbs: str, resources: str, groups: str = "") -> Object:
    return {
        "verbs": verbs.split(","),
        "resources": resources.split(","),
        "apiGroups": groups.split(","),
    }


def a_subject(kind: str, name: str, namespace: str = "") -> Object:
    return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}


ALICE = a_subject("User", "alice")


def a_grant(role: str, *subjects: Object, namespace: str = "", of: str = "ClusterRole") -> Object:
    metadata = {"name": f"{role}-of", **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": RBAC,
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"kind": of, "name": role, "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": list(subjects or (ALICE,)),
    }


RULES = {
    "binds": (a_rule("create", "pods/binding"), ["rights.bind"]),
    "binds the older way": (a_rule("create,get", "pods,bindings"), ["rights.bind"]),
    "any subresource": (a_rule("*", "*/binding"), ["rights.bind"]),
    "quota status": (a_rule("patch", "resourcequotas/status"), ["rights.quota-status"]),
    "reads quotas": (a_rule("get,list", "resourcequotas,resourcequotas/status"), []),
    "ledgers": (a_rule("update", "quotaledgers/status", "deferredquota.io"), ["rights.ledgers"]),
    "reads ledgers": (a_rule("get,list,watch", "*", "deferredquota.io"), []),
    "another group": (a_rule("create", "bindings", "servicecatalog.k8s.io"), []),
    "everything in the core": (a_rule("*", "*", ""), ["rights.bind", "rights.quota-status"]),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (CLUSTER_ROLES, "deferred-quota-webhook"),
        (CLUSTER_ROLE_BINDINGS, "deferred-quota-controller"),
        (ROLES, "deferred-quota-controller"),
        (ROLE_BINDINGS, "deferred-quota-webhook"),
    ],
    ids=["role", "binding", "namespaced role", "namespaced binding"],
)
def test_a_right_of_ours_that_is_gone_is_found(kind: Kind, name: str) -> None:
    cluster = healthy()
    namespace = DEFAULT_NAMESPACE if kind.namespaced else ""
    remove(cluster, kind, name, namespace=namespace)
    found = the(examined(cluster), "rights.missing")
    assert (found.severity, found.subject) == ("error", Subject(kind.kind, name, namespace))


@pytest.mark.parametrize(("rule", "expected"), RULES.values(), ids=RULES)
def test_powers_are_found(rule: Object, expected: list[str]) -> None:
    cluster = healthy()
    load(cluster, a_role("power", rule), a_grant("power"))
    assert ids(serious(examined(cluster))) == expected


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (a_rule("create", "pods"), "rights.create-pods"),
        (a_rule("*", "*", "*"), "rights.everything"),
        (a_rule("patch", "namespaces"), "rights.opt-out"),
        (
            a_rule("delete", "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
            "rights.registrations",
        ),
    ],
)
def test_ordinary_powers_are_only_noted(rule: Object, name: str) -> None:
    cluster = healthy()
    load(cluster, a_role("power", rule), a_grant("power"))
    found = the(examined(cluster), name)
    assert (found.severity, found.details) == ("info", ("User alice (power)",))


SUBJECTS = {
    "the scheduler": (a_subject("User", "system:kube-scheduler"), False),
    "masters": (a_subject("Group", "system:masters"), False),
    "a controller of the platform": (a_subject("ServiceAccount", "x", "kube-system"), False),
    "ours": (a_subject("ServiceAccount", "x", "deferred-quota-system"), False),
    "a workload": (a_subject("ServiceAccount", "x", NAMESPACE), True),
    "everybody": (a_subject("Group", "system:authenticated"), True),
    "all workloads of a tenant": (a_subject("Group", f"system:serviceaccounts:{NAMESPACE}"), True),
    "all of the platform": (a_subject("Group", "system:serviceaccounts:kube-system"), False),
    "a workload as a user": (a_subject("User", f"system:serviceaccount:{NAMESPACE}:x"), True),
    "ours as a user": (a_subject("User", "system:serviceaccount:deferred-quota-system:x"), False),
}


@pytest.mark.parametrize(("subject", "is_told"), SUBJECTS.values(), ids=SUBJECTS)
def test_the_platform_itself_is_trusted(subject: Object, is_told: bool) -> None:
    cluster = healthy()
    load(cluster, a_role("power", a_rule("create", "bindings")), a_grant("power", subject))
    assert ("rights.bind" in ids(examined(cluster))) is is_told


def test_a_role_in_a_namespace_counts_there() -> None:
    cluster = healthy()
    rule = a_rule("create", "pods/binding")
    load(
        cluster,
        a_role("power", rule, kind="Role", namespace=NAMESPACE),
        a_grant("power", namespace=NAMESPACE, of="Role"),
        a_role("elsewhere", kind="Role", namespace=NAMESPACE),
        a_grant("elsewhere", namespace=NAMESPACE, of="Role"),
        a_grant("nothing", a_subject("User", "bob"), namespace=NAMESPACE),
    )
    found = the(examined(cluster), "rights.bind")
    assert found.details == ("User alice (power in team-a)",)


@pytest.mark.parametrize(
    ("asked", "is_told"),
    [((), True), (("team-x",), True), ((NAMESPACE,), False), ((NAMESPACE, "team-x"), True)],
)
def test_a_right_in_one_namespace_is_reported_where_that_is_looked_at(
    asked: tuple[str, ...], is_told: bool
) -> None:
    cluster = healthy()
    rule = a_rule("create", "pods/binding")
    load(cluster, a_role("power", rule), a_grant("power", namespace="team-x"))
    assert ("rights.bind" in ids(examined(cluster, namespaces=asked))) is is_told


def test_a_right_everywhere_or_beside_the_product_is_reported_whatever_is_looked_at() -> None:
    cluster = healthy()
    load(
        cluster,
        a_role("power", a_rule("create", "pods/binding")),
        a_grant("power"),
        a_grant("power", a_subject("User", "bob"), namespace="deferred-quota-system"),
    )
    found = the(examined(cluster, namespaces=(NAMESPACE,)), "rights.bind")
    assert found.details == ("User alice (power)", "User bob (power in deferred-quota-system)")


def test_many_are_summed_up() -> None:
    cluster = healthy()
    people = [a_subject("User", f"u{n}") for n in range(5)]
    load(cluster, a_role("power", a_rule("create", "bindings")), a_grant("power", *people))
    found = the(examined(cluster), "rights.bind")
    assert "User u2 (power) and 2 more may bind pods themselves" in found.message
    assert len(found.details) == 5


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "rules": ({**a_role("odd"), "rules": {"verbs": "*"}}, "rules: must be a list"),
    "verbs": (a_role("odd", {"verbs": "create"}), "rules[0].verbs: must be a list"),
    "subjects": ({**a_grant("power"), "subjects": "alice"}, "subjects: must be a list"),
    "reference": ({**a_grant("power"), "roleRef": 7}, "roleRef: must be an object"),
}


@pytest.mark.parametrize(("odd", "words"), ODD.values(), ids=ODD)
def test_odd_roles_are_named(odd: dict[str, Any], words: str) -> None:
    cluster = healthy()
    load(
        cluster,
        a_role("power", a_rule("create", "bindings")),
        odd,
        a_grant("power", a_subject("User", "bob"), namespace=NAMESPACE),
    )
    found = examined(cluster)
    assert words in the(found, "object.unreadable").message
    assert the(found, "rights.bind").details == ("User bob (power in team-a)",)
