from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.builders import a_pod
from tests.operations.healthy import (
    MANIFESTS,
    NOW,
    POLICIES,
    POLICY_BINDINGS,
    Change,
    a_bundle,
    a_lease,
    edit,
    examined,
    healthy,
    ids,
    remove,
    serious,
    the,
)
from tests.operations.scenes import a_cluster, a_namespace, load
from webhook.fakecluster.admission.webhook_configurations import webhooks
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import LEASES, MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from webhook.kube.files.documents import read_documents
from webhook.kube.kinds import Kind
from webhook.operations.doctor.installation import WRITTEN_FIELDS
from webhook.operations.doctor.runner import CHECKS
from webhook.operations.names import (
    CLUSTER_QUOTA_CRD,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEDGER_CRD,
    MASK_POLICY,
    MUTATING,
    MUTATING_LAST,
    VALIDATING,
)
from webhook.quota.amounts.resources import parse_resource_list
from webhook.quota.ledger.ledger import (
    Account,
    Condition,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
)
from webhook.quota.ledger.ledger_codec import ledger_status
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.state.well_known import (
    DEFAULT_NAMESPACE,
    LAST_REGISTRATION,
    LEADER_LEASE,
    MODE_LABEL,
    REGISTRATION,
)


def test_a_healthy_cluster_has_nothing_but_a_note() -> None:
    found = examined(healthy())
    assert ids(found) == ["control-plane.limited-resources"]
    assert found.checked == [check.name for check in CHECKS]
    assert not found.skipped


def test_an_installation_with_a_prefix_to_its_names_is_named() -> None:
    cluster = healthy()
    client = FakeClient(cluster)
    raw: Any = client.get(VALIDATING_WEBHOOKS, REGISTRATION)
    remove(cluster, VALIDATING_WEBHOOKS, REGISTRATION)
    client.create(
        VALIDATING_WEBHOOKS, {**raw, "metadata": {"name": "my-deferred-quota", "labels": {}}}
    )
    finding = the(examined(cluster), "installation.renamed")
    assert finding.severity == "error"
    assert str(finding.subject) == "ValidatingWebhookConfiguration my-deferred-quota"
    assert "namePrefix" in finding.remedy


def test_what_is_expected_is_what_the_embedded_api_server_registers() -> None:
    registered = {
        (str(hook.phase), hook.name): hook for hook in webhooks("https://webhook.example")
    }
    expected = {
        **{("mutating", name): entry for name, entry in {**MUTATING, **MUTATING_LAST}.items()},
        **{("validating", name): entry for name, entry in VALIDATING.items()},
    }
    assert registered.keys() == expected.keys()
    for key, entry in expected.items():
        assert registered[key].failure_policy == entry.policy, key
        covered = {
            (operation, group, resource)
            for rule in registered[key].rules
            for operation in rule.operations
            for group in rule.groups
            for resource in rule.resources
        }
        assert covered == set(entry.covers), key


def spec(raw: Any) -> Any:
    return raw["spec"]


def version(raw: Any) -> Any:
    return raw["spec"]["versions"][0]


def fields(raw: Any) -> Any:
    return version(raw)["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


DEFINITIONS: dict[str, tuple[Change, str, str]] = {
    "another version": (
        lambda raw: version(raw).update(name="v1beta1"),
        "crd.version",
        "does not serve v1alpha1; its versions are: v1beta1",
    ),
    "not served": (
        lambda raw: version(raw).update(served=False),
        "crd.version",
        "does not serve v1alpha1; its versions are: v1alpha1",
    ),
    "cluster scope": (
        lambda raw: spec(raw).update(scope="Cluster"),
        "crd.schema",
        "spec.scope: is 'Cluster', must be Namespaced",
    ),
    "no status subresource": (
        lambda raw: version(raw).pop("subresources"),
        "crd.schema",
        "version v1alpha1 has no status subresource",
    ),
    "a field of a former release": (
        lambda raw: fields(raw).pop("podsBarrier"),
        "crd.schema",
        "its schema lacks fields that ledgers have, and drops them: status.podsBarrier",
    ),
    "a field inside a list": (
        lambda raw: fields(raw)["quotas"]["items"]["properties"].pop("pending"),
        "crd.schema",
        "its schema lacks fields that ledgers have, and drops them: status.quotas.pending",
    ),
    "another type": (
        lambda raw: fields(raw)["reservations"].update(type="array", items={"type": "object"}),
        "crd.schema",
        "its schema wants status.reservations to be of type array, not string",
    ),
    "odd versions": (
        lambda raw: spec(raw).update(versions="v1alpha1"),
        "object.unreadable",
        "cannot be read: spec.versions: must be a list, not a string",
    ),
}


@pytest.mark.parametrize(("change", "name", "message"), DEFINITIONS.values(), ids=DEFINITIONS)
def test_the_definition_is_compared(change: Change, name: str, message: str) -> None:
    cluster = healthy()
    edit(cluster, CUSTOM_RESOURCE_DEFINITIONS, LEDGER_CRD, change)
    finding = the(examined(cluster), name)
    assert (finding.severity, finding.message) == ("error", message)


CLUSTER_DEFINITIONS: dict[str, tuple[Change, str]] = {
    "namespaced": (
        lambda raw: spec(raw).update(scope="Namespaced"),
        "spec.scope: is 'Namespaced', must be Cluster",
    ),
    "without what people are told": (
        lambda raw: fields(raw).pop("summary"),
        "its schema lacks fields that cluster quotas have, and drops them: status.summary",
    ),
}


@pytest.mark.parametrize(
    ("change", "message"), CLUSTER_DEFINITIONS.values(), ids=CLUSTER_DEFINITIONS
)
def test_the_definition_of_cluster_quotas_is_compared_too(change: Change, message: str) -> None:
    cluster = healthy()
    edit(cluster, CUSTOM_RESOURCE_DEFINITIONS, CLUSTER_QUOTA_CRD, change)
    finding = the(examined(cluster), "crd.schema")
    assert (finding.severity, finding.message) == ("error", message)


def test_cluster_quotas_are_no_part_of_an_older_installation() -> None:
    cluster = healthy()
    remove(cluster, CUSTOM_RESOURCE_DEFINITIONS, CLUSTER_QUOTA_CRD)
    finding = the(examined(cluster), "cdq.crd-missing")
    assert finding.severity == "warn"


def test_a_schema_that_keeps_everything_is_fine() -> None:
    cluster = healthy()

    def keep(raw: Any) -> None:
        version(raw)["schema"] = {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        }

    edit(cluster, CUSTOM_RESOURCE_DEFINITIONS, LEDGER_CRD, keep)
    assert serious(examined(cluster)) == []


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Where something stands in an object; lists are looked into, maps of amounts are not."""
    if isinstance(value, list):
        for item in value:
            yield from paths(item, path)
    elif isinstance(value, dict) and path.rpartition(".")[2] not in AMOUNTS:
        for name, item in value.items():
            yield from paths(item, f"{path}.{name}".lstrip("."))
    else:
        yield path


AMOUNTS = {"hard", "used", "reserved", "pending", "granted"}


def test_every_field_that_is_written_is_looked_for() -> None:
    """Nobody adds a field to ledgers without the doctor looking for it in the definition."""
    observed = QuotaRevision("p1", "uid", "hash")
    amounts = parse_resource_list({"cpu": "1"}, field="")
    ledger = Ledger(
        {"p1": Account(observed, amounts, amounts, amounts, amounts, amounts)},
        {
            "u": Reservation(
                "u", "web", ReservationSource.BIND, amounts, {"p1": amounts}, ("p1",), 1
            )
        },
        conditions=(Condition("Counted", "True", "Why", "because", "2026-01-01T00:00:00Z"),),
    )
    assert set(paths({"status": ledger_status(ledger)})) == set(WRITTEN_FIELDS)


def entry(name: str) -> Any:
    def find(raw: Any) -> Any:
        (one,) = [each for each in raw["webhooks"] if each["name"] == f"{name}.deferredquota.io"]
        return one

    return find


bind, resize, shape, stamp = entry("bind"), entry("resize"), entry("shape"), entry("stamp")
quotas, gate, marks = entry("quotas"), entry("gate"), entry("marks")
ungated, assigned = entry("ungated"), entry("assigned")


def expressions(one: Any) -> Any:
    return one["namespaceSelector"]["matchExpressions"]


ENTRIES: dict[str, tuple[Any, Change, str, str, str]] = {
    "a webhook that fails open": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw).update(failurePolicy="Ignore"),
        "webhooks.failure-policy",
        "error",
        "failurePolicy: is Ignore, must be Fail: pods are bound without being charged",
    ),
    "advice that fails closed": (
        VALIDATING_WEBHOOKS,
        lambda raw: shape(raw).pop("failurePolicy"),
        "webhooks.failure-policy",
        "warn",
        "failurePolicy: is Fail, must be Ignore: an outage of the webhook stops requests",
    ),
    "an entry is gone": (
        VALIDATING_WEBHOOKS,
        lambda raw: raw["webhooks"].remove(resize(raw)),
        "webhooks.incomplete",
        "error",
        "has no webhook resize.deferredquota.io: pods grow without being charged",
    ),
    "advice is gone": (
        VALIDATING_WEBHOOKS,
        lambda raw: raw["webhooks"].remove(quotas(raw)),
        "webhooks.incomplete",
        "warn",
        "has no webhook quotas.deferredquota.io",
    ),
    "an entry of another release": (
        VALIDATING_WEBHOOKS,
        lambda raw: raw["webhooks"].append({"name": "x.example"}),
        "webhooks.unknown",
        "info",
        "has a webhook that this release does not know: x.example",
    ),
    "the older way to bind is not covered": (
        MUTATING_WEBHOOKS,
        lambda raw: stamp(raw)["rules"][0].update(resources=["pods/binding"]),
        "webhooks.rules",
        "error",
        "webhook stamp.deferredquota.io: rules do not cover CREATE bindings",
    ),
    "rules for objects of the cluster only": (
        VALIDATING_WEBHOOKS,
        lambda raw: quotas(raw)["rules"][0].update(scope="Cluster"),
        "webhooks.rules",
        "warn",
        "rules do not cover CREATE resourcequotas, UPDATE resourcequotas",
    ),
    "all namespaces": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw).pop("namespaceSelector"),
        "registration.widened",
        "error",
        "webhook bind.deferredquota.io: namespaceSelector selects namespaces that have not",
    ),
    "too few namespaces": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw)["namespaceSelector"].update(matchLabels={"team": "b"}),
        "registration.not-selecting",
        "error",
        "namespaceSelector leaves out namespaces that have opted in: team-a",
    ),
    "an object selector": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw).update(objectSelector={"matchLabels": {"a": "b"}}),
        "webhooks.narrowed",
        "error",
        "webhook bind.deferredquota.io: objectSelector: leaves requests out",
    ),
    "another object selector than its own": (
        VALIDATING_WEBHOOKS,
        lambda raw: shape(raw).update(objectSelector={"matchLabels": {"a": "b"}}),
        "webhooks.narrowed",
        "warn",
        "webhook shape.deferredquota.io: objectSelector: leaves requests out",
    ),
    "exact versions": (
        VALIDATING_WEBHOOKS,
        lambda raw: resize(raw).update(matchPolicy="Exact"),
        "webhooks.narrowed",
        "error",
        "webhook resize.deferredquota.io: matchPolicy: is Exact",
    ),
    "a condition on binds": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw).update(matchConditions=[{"name": "x", "expression": "false"}]),
        "webhooks.narrowed",
        "error",
        "matchConditions: not those of this release, or changed: x: pods are bound without being",
    ),
    "a condition on resizes": (
        VALIDATING_WEBHOOKS,
        lambda raw: resize(raw)["matchConditions"].append({"name": "x", "expression": "false"}),
        "webhooks.narrowed",
        "error",
        "matchConditions: not those of this release, or changed: x: pods grow without being",
    ),
    "another condition on pods with a node": (
        VALIDATING_WEBHOOKS,
        lambda raw: assigned(raw)["matchConditions"][0].update(expression="false"),
        "webhooks.narrowed",
        "error",
        "changed: has-node: pods created with a node are not charged",
    ),
    "a condition on advice": (
        VALIDATING_WEBHOOKS,
        lambda raw: quotas(raw).update(matchConditions=[{"name": "x", "expression": "false"}]),
        "webhooks.narrowed",
        "warn",
        "webhook quotas.deferredquota.io: matchConditions: not those of this release, or changed:",
    ),
    "is asked about every new pod": (
        VALIDATING_WEBHOOKS,
        lambda raw: assigned(raw).pop("matchConditions"),
        "webhooks.narrowed",
        "warn",
        "assigned.deferredquota.io: matchConditions: not those of this release, or changed: has-",
    ),
    "the path that allows everything": (
        VALIDATING_WEBHOOKS,
        lambda raw: resize(raw)["clientConfig"]["service"].update(path="/shadow"),
        "webhooks.path",
        "error",
        "webhook resize.deferredquota.io: clientConfig: calls /shadow, must call /validate: pods",
    ),
    "another Service": (
        VALIDATING_WEBHOOKS,
        lambda raw: resize(raw)["clientConfig"]["service"].update(name="mine"),
        "webhooks.service",
        "error",
        "calls Service deferred-quota-system/mine:443, must call deferred-quota-system/deferred-",
    ),
    "a Service elsewhere": (
        MUTATING_WEBHOOKS,
        lambda raw: gate(raw)["clientConfig"]["service"].update(namespace="team-a"),
        "webhooks.service",
        "warn",
        "gate.deferredquota.io: clientConfig: calls Service team-a/deferred-quota-webhook:443, ",
    ),
    "another port of the Service": (
        MUTATING_WEBHOOKS,
        lambda raw: gate(raw)["clientConfig"]["service"].update(port=8443),
        "webhooks.service",
        "warn",
        "calls Service deferred-quota-system/deferred-quota-webhook:8443, must call deferred-",
    ),
    "a URL without a path": (
        MUTATING_WEBHOOKS,
        lambda raw: gate(raw).update(clientConfig={"url": "https://192.0.2.7:9443"}),
        "webhooks.path",
        "warn",
        "webhook gate.deferredquota.io: clientConfig: calls /, must call /mutate: pods do not wait",
    ),
    "pins not all that has no uid": (
        MUTATING_WEBHOOKS,
        lambda raw: stamp(raw)["matchConditions"].append({"name": "x", "expression": "false"}),
        "webhooks.stamp",
        "warn",
        "webhook stamp.deferredquota.io: matchConditions: may leave out Bindings without uid",
    ),
    "is asked about every bind": (
        MUTATING_WEBHOOKS,
        lambda raw: stamp(raw).pop("matchConditions"),
        "webhooks.stamp",
        "info",
        "webhook stamp.deferredquota.io: matchConditions: are missing: a call for each bind",
    ),
    "asks about the namespace of the installation": (
        VALIDATING_WEBHOOKS,
        lambda raw: expressions(resize(raw))[1]["values"].remove("deferred-quota-system"),
        "registration.own-namespace",
        "warn",
        "resize.deferredquota.io: namespaceSelector does not leave out deferred-quota-system: ",
    ),
    "gates for nobody": (
        MUTATING_WEBHOOKS,
        lambda raw: expressions(gate(raw))[2].update(operator="In", values=["always"]),
        "registration.not-selecting",
        "warn",
        "webhook gate.deferredquota.io: namespaceSelector leaves out namespaces that have opted in",
    ),
    "gates for all": (
        MUTATING_WEBHOOKS,
        lambda raw: expressions(gate(raw)).pop(),
        "registration.gating",
        "warn",
        "namespaceSelector selects namespaces whose gating is never",
    ),
    "gates where nobody opted in": (
        MUTATING_WEBHOOKS,
        lambda raw: expressions(gate(raw)).pop(0),
        "registration.widened",
        "warn",
        "webhook gate.deferredquota.io: namespaceSelector selects namespaces that have not",
    ),
    "gates that anybody takes off": (
        VALIDATING_WEBHOOKS,
        lambda raw: raw["webhooks"].remove(marks(raw)),
        "webhooks.incomplete",
        "warn",
        "has no webhook marks.deferredquota.io: users with the right to change a pod can take",
    ),
    "gates that stop creations": (
        MUTATING_WEBHOOKS,
        lambda raw: gate(raw).update(failurePolicy="Fail"),
        "webhooks.failure-policy",
        "warn",
        "webhook gate.deferredquota.io: failurePolicy: is Fail, must be Ignore",
    ),
    "no CA": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw)["clientConfig"].pop("caBundle"),
        "webhooks.ca",
        "error",
        "webhook bind.deferredquota.io: clientConfig.caBundle is empty",
    ),
    "no CA at a URL": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw).update(clientConfig={"url": "https://192.0.2.7:9443/validate"}),
        "webhooks.ca",
        "warn",
        "webhook bind.deferredquota.io: clientConfig.caBundle is empty: only a CA",
    ),
    "a CA that is none": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw)["clientConfig"].update(caBundle="bm9uZQ=="),
        "webhooks.ca",
        "error",
        "clientConfig.caBundle is not a certificate in PEM",
    ),
    "a CA that is not even base64": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw)["clientConfig"].update(caBundle="%%%"),
        "webhooks.ca",
        "error",
        "clientConfig.caBundle is not a certificate in PEM",
    ),
    "a CA that has ended": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw)["clientConfig"].update(
            caBundle=a_bundle(now=NOW - timedelta(days=30), lifetime=timedelta(days=2))
        ),
        "webhooks.ca",
        "error",
        "clientConfig.caBundle ended at 2026-05-04 00:00 UTC",
    ),
    "a CA that begins later": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw)["clientConfig"].update(
            caBundle=a_bundle(now=NOW + timedelta(days=30), lifetime=timedelta(days=2))
        ),
        "webhooks.ca",
        "error",
        "clientConfig.caBundle begins at 2026-06-30 23:00 UTC",
    ),
    "a CA that ends soon": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw)["clientConfig"].update(
            caBundle=a_bundle(now=NOW, lifetime=timedelta(days=2))
        ),
        "webhooks.ca",
        "warn",
        "clientConfig.caBundle ends at 2026-06-03 00:00 UTC",
    ),
    "an odd list": (
        VALIDATING_WEBHOOKS,
        lambda raw: raw.update(webhooks={"name": "bind"}),
        "object.unreadable",
        "error",
        "cannot be read: webhooks: must be a list, not an object",
    ),
    "an odd selector": (
        VALIDATING_WEBHOOKS,
        lambda raw: bind(raw).update(
            namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]}
        ),
        "object.unreadable",
        "error",
        "webhooks[0].namespaceSelector.matchExpressions[0].operator: unknown operator 'Near'",
    ),
}


def test_entries_of_a_registration_without_a_ca_are_named_together() -> None:
    cluster = healthy()

    def lose(raw: dict[str, Any]) -> None:
        for each in raw["webhooks"]:
            del each["clientConfig"]["caBundle"]

    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, lose)
    found = the(examined(cluster), "webhooks.ca")  # there is one
    raw: Any = FakeClient(cluster).get(VALIDATING_WEBHOOKS, REGISTRATION)
    told = found.message.removeprefix("webhooks ").partition(": clientConfig.caBundle is empty")[0]
    assert sorted(told.split(", ")) == sorted(each["name"] for each in raw["webhooks"])


@pytest.mark.parametrize("rotates", [True, False])
def test_a_missing_ca_is_written_by_what_keeps_the_certificates(rotates: bool) -> None:
    cluster = healthy()
    lose = ENTRIES["no CA"][1]
    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, lose)
    writer = (
        "The controller that leads writes it" if rotates else "Run scripts/install, which writes"
    )
    assert the(examined(cluster, rotates=rotates), "webhooks.ca").remedy.startswith(writer)


@pytest.mark.parametrize(
    ("kind", "change", "name", "severity", "words"), ENTRIES.values(), ids=ENTRIES
)
def test_the_registrations_are_compared(
    kind: Any, change: Change, name: str, severity: str, words: str
) -> None:
    cluster = healthy()
    edit(cluster, kind, REGISTRATION, change)
    finding = the(examined(cluster), name)
    assert finding.severity == severity
    assert words in finding.message
    assert str(finding.subject) == f"{kind.kind} {REGISTRATION}"


def test_what_another_client_added_to_the_guard_is_removed_by_hand() -> None:
    """A server-side apply, as that of scripts/install, leaves it."""
    cluster = healthy()
    _, change, name, *_ = ENTRIES["a condition on binds"]
    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, change)
    remedy = the(examined(cluster), name).remedy
    assert remedy.endswith("kubectl edit validatingwebhookconfiguration deferred-quota")


def test_a_namespace_without_gates_is_left_out_on_purpose() -> None:
    cluster = healthy()
    labels = {"metadata": {"labels": {"deferredquota.io/gating": "never"}}}
    FakeClient(cluster).patch(NAMESPACES, "team-a", labels)
    assert serious(examined(cluster)) == []
    edit(cluster, MUTATING_WEBHOOKS, REGISTRATION, lambda raw: expressions(gate(raw)).pop())
    assert the(examined(cluster), "registration.gating").message.endswith("never: team-a")


def asking(find: Any, operator: str) -> Change:
    """Let an entry go by who asks for gates."""
    by = {"operator": operator, "values": ["always", "auto"]}
    return lambda raw: expressions(find(raw))[2].update(by)


def test_the_registration_goes_with_the_configured_gating() -> None:
    cluster = healthy()
    odd = ["registration.gating", "registration.not-selecting"]
    assert sorted(ids(serious(examined(cluster, gating="never")))) == odd
    edit(cluster, MUTATING_WEBHOOKS, REGISTRATION, asking(gate, "In"))
    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, asking(ungated, "NotIn"))
    assert serious(examined(cluster, gating="never")) == []
    for value, findings in {"always": [], "typo": ["namespace.gating"]}.items():
        labels = {"metadata": {"labels": {"deferredquota.io/gating": value}}}
        FakeClient(cluster).patch(NAMESPACES, "team-a", labels)
        assert ids(serious(examined(cluster, gating="never"))) == findings


def test_a_ca_in_two_halves_of_a_rotation_is_fine() -> None:
    """The old CA has ended, the new one has not; a bundle holds both for a while."""
    import base64  # noqa: PLC0415

    old = base64.b64decode(a_bundle(now=NOW - timedelta(days=30), lifetime=timedelta(days=2)))
    both = base64.b64encode(old + base64.b64decode(a_bundle())).decode()
    cluster = healthy()
    edit(
        cluster,
        VALIDATING_WEBHOOKS,
        REGISTRATION,
        lambda raw: bind(raw)["clientConfig"].update(caBundle=both),
    )
    assert serious(examined(cluster)) == []


@pytest.mark.parametrize("kind", [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS])
def test_a_missing_registration_is_named(kind: Any) -> None:
    cluster = healthy()
    remove(cluster, kind, REGISTRATION)
    found = the(examined(cluster), "webhooks.missing")
    assert (found.severity, str(found.subject)) == ("error", f"{kind.kind} {REGISTRATION}")


def test_without_the_registration_for_jobs_only_words_are_missing() -> None:
    cluster = healthy()
    remove(cluster, MUTATING_WEBHOOKS, LAST_REGISTRATION)
    found = the(examined(cluster), "webhooks.missing")
    assert (found.severity, found.message) == (
        "warn",
        "does not exist: changes of Jobs are refused in the API server's words only",
    )
    assert str(found.subject) == f"MutatingWebhookConfiguration {LAST_REGISTRATION}"


def test_an_old_place_of_the_registration_for_jobs_is_reported() -> None:
    cluster = healthy()
    last: Any = FakeClient(cluster).get(MUTATING_WEBHOOKS, LAST_REGISTRATION)
    edit(
        cluster,
        MUTATING_WEBHOOKS,
        REGISTRATION,
        lambda raw: raw["webhooks"].extend(last["webhooks"]),
    )
    found = the(examined(cluster), "webhooks.unknown")
    assert "jobs.deferredquota.io" in found.message


def test_an_exemption_that_the_registration_does_not_know_is_held_back() -> None:
    exempt = frozenset({"kube-system", "infra"})
    found = examined(healthy(), exempt=exempt)
    assert "infra" in the(found, "configuration.held-back").message
    lists = [one.message for one in found.findings if one.id == "identities.lists"]
    assert lists
    assert all("infra" in message for message in lists)


def a_report(second: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"configuration.{second}", "namespace": DEFAULT_NAMESPACE},
        "involvedObject": {"kind": "ConfigMap", "name": "deferred-quota-config"},
        "type": "Warning" if reason == "ConfigurationNotInForce" else "Normal",
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-06-01T00:00:0{second}Z",
        "reportingComponent": "deferred-quota-controller",
    }


def test_what_the_leader_reports_of_its_file_is_shown_until_it_reports_otherwise() -> None:
    cluster = healthy()
    assert "configuration.not-in-force" not in ids(examined(cluster))
    load(
        cluster,
        a_report(1, "ConfigurationInForce", "the configuration is in force"),
        a_report(2, "ConfigurationNotInForce", "configuration rejected: c.yaml: queue.order: ..."),
    )
    found = the(examined(cluster), "configuration.not-in-force")
    assert found.severity == "warn"
    assert "c.yaml: queue.order" in found.message
    assert "2026-06-01T00:00:02Z" in found.message
    load(cluster, a_report(3, "ConfigurationInForce", "the configuration is in force"))
    assert "configuration.not-in-force" not in ids(examined(cluster))


def test_a_missing_definition_is_named() -> None:
    cluster = healthy()
    remove(cluster, CUSTOM_RESOURCE_DEFINITIONS, LEDGER_CRD)
    assert the(examined(cluster), "crd.missing").severity == "error"


def mask_entry() -> Any:
    path = "components/mask-webhook/entry.yaml"
    (document,) = read_documents(path, (MANIFESTS / path).read_bytes())
    raw: Any = document.value
    (one,) = raw["webhooks"]
    one["clientConfig"]["caBundle"] = a_bundle()
    return one


def test_the_webhook_may_mask_instead_of_the_policy() -> None:
    cluster = healthy()
    remove(cluster, POLICIES, MASK_POLICY)
    assert the(examined(cluster), "mask.missing").severity == "error"
    edit(
        cluster,
        MUTATING_WEBHOOKS,
        REGISTRATION,
        lambda raw: raw["webhooks"].append(mask_entry()),
    )
    assert serious(examined(cluster)) == []


def test_two_masks_are_one_too_many() -> None:
    cluster = healthy()
    edit(
        cluster,
        MUTATING_WEBHOOKS,
        REGISTRATION,
        lambda raw: raw["webhooks"].append(mask_entry()),
    )
    assert the(examined(cluster), "mask.twice").severity == "info"


@pytest.mark.parametrize(
    ("fields", "name", "severity"),
    [
        ({"failurePolicy": "Fail"}, "webhooks.failure-policy", "error"),
        ({"timeoutSeconds": 10}, "webhooks.timeout", "warn"),
    ],
)
def test_a_mask_must_not_stand_in_the_way(
    fields: dict[str, object], name: str, severity: str
) -> None:
    cluster = healthy()
    edit(
        cluster,
        MUTATING_WEBHOOKS,
        REGISTRATION,
        lambda raw: raw["webhooks"].append({**mask_entry(), **fields}),
    )
    assert the(examined(cluster), name).severity == severity


def test_a_policy_without_binding_does_nothing() -> None:
    cluster = healthy()
    remove(cluster, POLICY_BINDINGS, MASK_POLICY)
    assert set(ids(serious(examined(cluster)))) == {"mask.unbound", "mask.missing"}


POLICY: dict[str, tuple[Change, str, str]] = {
    "fails closed": (
        lambda raw: spec(raw).pop("failurePolicy"),
        "mask.failure-policy",
        "spec.failurePolicy: must be Ignore",
    ),
    "other requests": (
        lambda raw: spec(raw)["matchConstraints"]["resourceRules"][0].update(operations=["CREATE"]),
        "mask.rules",
        "do not cover UPDATE resourcequotas/status",
    ),
    "odd variables": (
        lambda raw: spec(raw).update(matchConstraints="all"),
        "object.unreadable",
        "spec.matchConstraints: must be an object, not a string",
    ),
}


@pytest.mark.parametrize(("change", "name", "words"), POLICY.values(), ids=POLICY)
def test_the_policy_is_compared(change: Change, name: str, words: str) -> None:
    cluster = healthy()
    edit(cluster, POLICIES, MASK_POLICY, change)
    finding = the(examined(cluster), name)
    assert finding.severity == "error"
    assert words in finding.message


def test_a_binding_that_selects_every_namespace_is_reported() -> None:
    cluster = healthy()
    edit(cluster, POLICY_BINDINGS, MASK_POLICY, lambda raw: spec(raw).pop("matchResources"))
    finding = the(examined(cluster), "registration.widened")
    assert "its namespaceSelector selects namespaces that have not opted in" in finding.message


def test_what_policy_and_binding_select_has_to_hold_at_once() -> None:
    """One asks for another value of the label that the other asks for: nothing is masked."""
    cluster = healthy()

    def narrow(raw: Any) -> None:
        spec(raw)["matchConstraints"]["namespaceSelector"] = selecting("other")

    def bind_to_opted_in(raw: Any) -> None:
        spec(raw)["matchResources"] = {"namespaceSelector": selecting("deferred")}

    def selecting(mode: str) -> dict[str, object]:
        return {"matchLabels": {MODE_LABEL: mode}}

    edit(cluster, POLICIES, MASK_POLICY, narrow)
    edit(cluster, POLICY_BINDINGS, MASK_POLICY, bind_to_opted_in)
    finding = the(examined(cluster), "registration.not-selecting")
    assert "its namespaceSelector leaves out namespaces that have opted in" in finding.message


def test_a_policy_may_look_at_the_namespace_in_a_condition() -> None:
    cluster = healthy()

    def change(raw: Any) -> None:
        expression = "namespaceObject.metadata.labels['deferredquota.io/mode'] == 'deferred'"
        spec(raw)["matchConditions"].append({"name": "opted-in", "expression": expression})

    edit(cluster, POLICY_BINDINGS, MASK_POLICY, lambda raw: spec(raw).pop("matchResources"))
    edit(cluster, POLICIES, MASK_POLICY, change)
    assert ids(serious(examined(cluster))) == ["mask.edited"]


def without_conditions(raw: Any) -> None:
    del spec(raw)["matchConditions"][0]


def never_matching(raw: Any) -> None:
    spec(raw)["matchConditions"].append({"name": "x", "expression": "false"})


def rarely_matching(raw: Any) -> None:
    condition = spec(raw)["matchConditions"][1]
    condition["expression"] = f"false && {condition['expression']}"


def of_some_objects(raw: Any) -> None:
    for field in {"matchConstraints", "matchResources"} & spec(raw).keys():
        spec(raw)[field]["objectSelector"] = {"matchLabels": {"a": "b"}}


def excluding(raw: Any) -> None:
    for field in {"matchConstraints", "matchResources"} & spec(raw).keys():
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
        spec(raw)[field]["excludeResourceRules"] = [rule]


def without_mutations(raw: Any) -> None:
    spec(raw)["mutations"][0]["jsonPatch"]["expression"] = "[]"


def of_one_quota(raw: Any) -> None:
    spec(raw)["matchConstraints"]["resourceRules"][0]["resourceNames"] = ["compute"]


def of_exact_versions(raw: Any) -> None:
    for field in {"matchConstraints", "matchResources"} & spec(raw).keys():
        spec(raw)[field]["matchPolicy"] = "Exact"


def with_parameters(raw: Any) -> None:
    spec(raw)["paramRef"] = {"name": "x", "parameterNotFoundAction": "Deny"}


def of_some_requests(raw: Any) -> None:
    spec(raw)["matchResources"]["resourceRules"] = [{"operations": ["DELETE"]}]


_POLICY: Final = "mutatingadmissionpolicy deferred-quota-mask"
_BINDING: Final = "mutatingadmissionpolicybinding deferred-quota-mask"
EDITED: dict[str, tuple[Kind, Change, str, str]] = {
    "a condition less": (POLICIES, without_conditions, "changed: is-not-excluded", _POLICY),
    "one more": (POLICIES, never_matching, "spec.matchConditions: not those of this", _POLICY),
    "another one": (POLICIES, rarely_matching, "changed: shows-deferred-resources", _POLICY),
    "some objects": (POLICIES, of_some_objects, "matchConstraints.objectSelector", _POLICY),
    "bound to some objects": (
        POLICY_BINDINGS,
        of_some_objects,
        "spec.matchResources.objectSelector: may leave quotas out",
        _BINDING,
    ),
    "excluding": (POLICIES, excluding, "matchConstraints.excludeResourceRules", _POLICY),
    "bound to no objects": (
        POLICY_BINDINGS,
        excluding,
        "spec.matchResources.excludeResourceRules: may leave quotas out",
        _BINDING,
    ),
    "no mutations": (POLICIES, without_mutations, "is not that of this release, or was", _POLICY),
    "one quota": (POLICIES, of_one_quota, "is not that of this release, or was changed", _POLICY),
    "exact versions": (POLICIES, of_exact_versions, "matchConstraints.matchPolicy: may", _POLICY),
    "bound to exact versions": (
        POLICY_BINDINGS,
        of_exact_versions,
        "spec.matchResources.matchPolicy: may leave quotas out",
        _BINDING,
    ),
    "bound to parameters": (POLICY_BINDINGS, with_parameters, "spec.paramRef: may", _BINDING),
    "bound to some requests": (
        POLICY_BINDINGS,
        of_some_requests,
        "spec.matchResources.resourceRules: may leave quotas out",
        _BINDING,
    ),
}


@pytest.mark.parametrize(("kind", "change", "words", "where"), EDITED.values(), ids=EDITED)
def test_a_policy_that_does_not_mask_all_is_named(
    kind: Kind, change: Change, words: str, where: str
) -> None:
    cluster = healthy()
    edit(cluster, kind, MASK_POLICY, change)
    (finding,) = serious(examined(cluster))
    assert (finding.id, finding.severity) == ("mask.edited", "warn")
    assert words in finding.message
    assert finding.remedy.endswith(f"remove that with kubectl edit {where}")


def test_a_webhook_that_does_not_mask_all_is_named() -> None:
    cluster = healthy()
    remove(cluster, POLICIES, MASK_POLICY)
    entry = mask_entry()
    entry["matchConditions"].append({"name": "x", "expression": "false"})
    edit(cluster, MUTATING_WEBHOOKS, REGISTRATION, lambda raw: raw["webhooks"].append(entry))
    finding = the(examined(cluster), "webhooks.narrowed")
    assert finding.severity == "warn"
    assert finding.message.endswith("matchConditions: not those of this release, or changed: x")


def less(expression: str) -> str:
    return expression.replace("'cpu', ", "")


def nothing(expression: str) -> str:
    return "[]" + expression[expression.index("]") + 1 :]


@pytest.mark.parametrize(("change", "unmasked"), [(less, "cpu"), (nothing, "cpu, limits.cpu")])
@pytest.mark.parametrize("kind", [POLICIES, MUTATING_WEBHOOKS])
def test_every_list_of_a_mask_has_all_that_is_deferred(
    kind: Kind, change: Callable[[str], str], unmasked: str
) -> None:
    cluster = healthy()
    if kind == MUTATING_WEBHOOKS:
        one = mask_entry()
        edit(cluster, kind, REGISTRATION, lambda raw: raw["webhooks"].append(one))
        remove(cluster, POLICIES, MASK_POLICY)

    def narrow(raw: Any) -> None:
        place = entry("mask")(raw) if kind == MUTATING_WEBHOOKS else spec(raw)
        condition = place["matchConditions"][1]
        condition["expression"] = change(condition["expression"])

    edit(cluster, kind, MASK_POLICY if kind == POLICIES else REGISTRATION, narrow)
    finding = the(examined(cluster), "mask.keys")
    assert finding.message.startswith(f"does not mask {unmasked}")


def test_a_policy_masks_just_what_is_deferred() -> None:
    gpu = "requests.nvidia.com/gpu"
    keys = {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", gpu}
    unmasked = the(examined(healthy(), deferred_keys=keys), "mask.keys")
    assert unmasked.message == f"does not mask {gpu}: charged at creation and at the bind"
    uncharged = the(examined(healthy(), deferred_keys=keys - {gpu, "limits.cpu"}), "mask.keys")
    assert uncharged.message.startswith("masks limits.cpu, which the configuration does not defer")


def test_a_lease_that_is_not_renewed_is_found() -> None:
    found = examined(healthy(), lambda: None)
    finding = the(found, "leader.silent")
    assert finding.message == (
        "its holder deferred-quota-controller-1-7-0a1b2c3d has not renewed it for 15 seconds"
        " (renewed last at 2026-06-01T00:00:00.000000Z)"
    )
    assert finding.remedy.endswith(" deferred-quota-controller-1")


def test_a_lease_without_a_holder_is_found() -> None:
    cluster = healthy()
    remove(cluster, LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    assert the(examined(cluster), "leader.missing").severity == "error"
    load(cluster, a_lease(holder=""))
    assert the(examined(cluster), "leader.none").severity == "error"


def waiting_for_quota(name: str, namespace: str = "team-a", *, node: str = "") -> Any:
    condition = {"type": QUOTA_RESERVED, "status": "False", "reason": "Behind", "message": "old"}
    status = {"conditions": [condition]}
    return a_pod(name=name, namespace=namespace, uid=f"uid-{name}", node=node, status=status)


NOT_LED: dict[str, tuple[str | None, bool, str]] = {
    "silent": ("deferred-quota-controller-1-7-0a1b2c3d", False, "leader.silent"),
    "given back": ("", True, "leader.none"),
    "missing": (None, True, "leader.missing"),
}


@pytest.mark.parametrize(("holder", "is_renewed", "name"), NOT_LED.values(), ids=NOT_LED)
def test_since_when_conditions_are_not_renewed_is_reported(
    holder: str | None, is_renewed: bool, name: str
) -> None:
    cluster = healthy()
    load(cluster, a_namespace("plain", mode=""))
    load(cluster, waiting_for_quota("b"), waiting_for_quota("a"), waiting_for_quota("c", "plain"))
    assert "conditions.stale" not in ids(examined(cluster))
    remove(cluster, LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    if holder is not None:
        load(cluster, a_lease(holder=holder))
    found = examined(cluster) if is_renewed else examined(cluster, lambda: None)
    assert name in ids(found)
    stale = the(found, "conditions.stale")
    since = "now"
    if holder is not None:
        since = "after 2026-06-01T00:00:00.000000Z, when the leader last renewed its Lease"
    assert stale.message == (
        f"the condition deferredquota.io/QuotaReserved of 2 pods is not renewed {since}: numbers"
        " and places in it are old, and no pod is released"
    )
    assert stale.details == ("team-a/a", "team-a/b")
    assert "kubectl get pods -n deferred-quota-system" in stale.remedy


def test_a_namespace_that_the_registrations_exempt_is_found() -> None:
    cluster = healthy()
    load(cluster, a_namespace("kube-public"))
    found = examined(cluster, exempt=frozenset())
    assert "registration.not-selecting" in ids(found)


def test_where_nothing_is_installed_the_first_thing_said_is_how_to_install() -> None:
    found = examined(a_cluster(a_namespace("default", mode=""), a_namespace()))
    first = found.findings[0]
    assert (first.id, first.severity) == ("installation.missing", "error")
    assert first.remedy.startswith("Run scripts/install")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (CUSTOM_RESOURCE_DEFINITIONS, LEDGER_CRD),
        (VALIDATING_WEBHOOKS, "deferred-quota"),
        (LEASES, LEADER_LEASE),
    ],
    ids=["definition", "registration", "lease"],
)
def test_where_a_part_is_missing_it_is_said_how_it_is_installed(kind: Kind, name: str) -> None:
    cluster = healthy()
    remove(cluster, kind, name, namespace=DEFAULT_NAMESPACE if kind is LEASES else "")
    found = examined(cluster, lambda: None)
    assert "installation.missing" not in ids(found)
    missing = [one for one in found.findings if one.id.endswith(".missing")]
    assert missing
    assert all("scripts/install" in one.remedy for one in missing)
