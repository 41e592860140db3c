"""The chart, rendered by Helm: equal to what scripts/install renders, for values of every kind."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.e2e.cluster.install.chart import (
    SERVES_ALL,
    SERVES_DEVICE_CLASSES,
    Values,
    helm,
    made_objects,
    template,
    wanted_objects,
)
from webhook.install.chart import CHART
from webhook.install.rendering import Mask
from webhook.operations.names import DEVICE_CLAIMS_POLICY
from webhook.state.well_known import DEFAULT_NAMESPACE

CA: Final = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
OTHER_CA: Final = CA.replace("MIIB", "MIIC")
KEY: Final = CA.replace("CERTIFICATE", "PRIVATE KEY")
URL: Final = "https://192.0.2.7:9443"
GPU: Final = "requests.nvidia.com/gpu"
ODD_NAMES: Final = [
    "on", "1_000", "0o7", "010", "1e3", "~", "null", "=", "<<", "1:30", "2001-01-01", "- a", "a: b",
    "#a", "{{ .Values }}", "it's", 'a"b', "a\\b", "a\\'b", 'a\\"b', "Ünal", "<a&b>", " a ", "%",
]  # fmt: skip


def configuration(**fields: Any) -> dict[str, Any]:
    return {"configuration": fields}


VALUES: Final[dict[str, Values]] = {
    "a mask by the webhook": {"mask": "webhook"},
    "new pods by the webhook": {"creation": "webhook"},
    "new pods by policies where every pod is gated": {
        "creation": "policy",
        **configuration(gating="always"),
    },
    "new pods by what there is, without gates": {
        "creation": "auto",
        **configuration(gating="never"),
    },
    "new pods by policies where gates go by need": {
        "creation": "policy",
        **configuration(gating="auto"),
    },
    "new pods by the webhook, with rules about classes": {
        "creation": "webhook",
        **configuration(
            requireQuotaForPriority=[{"scopeName": "PriorityClass", "operator": "Exists"}]
        ),
    },
    "what is silent is refused at its bind": {
        "creation": "policy",
        **configuration(mustSpecify="bind"),
    },
    "marks of bound pods": {"stamps": True},
    "an image of another registry": {"image": {"repository": "registry.example:5000/a/dq"}},
    "a tag": {"image": {"tag": "0.2.0-rc.1"}},
    "a tag of digits": {"image": {"tag": "20261123"}},
    "a digest": {"image": {"digest": f"sha256:{'a1' * 32}", "tag": "ignored"}},
    "secrets for the image": {"imagePullSecrets": [{"name": "registry"}]},
    "nodes": {
        "nodeSelector": {"node-role.kubernetes.io/control-plane": "", "zone": "1"},
        "tolerations": [
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
            {"key": "slow", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 3000000},
        ],
    },
    "replicas of the webhook": {"webhook": {"replicas": 5}},
    "replicas of the controller": {"controller": {"replicas": 1}},
    "resources of the webhook": {"webhook": {"resources": {"requests": {"cpu": "2"}}}},
    "resources of the controller": {
        "controller": {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
    },
    "an address": {"url": URL},
    "an address that ends with a slash": {"url": f"{URL}/"},
    "an address with a CA": {"url": URL, "ca": CA},
    "an address with the mask by the webhook": {"url": URL, "mask": "webhook"},
    "an address with the page": {"url": URL, **configuration(page={"enabled": True})},
    "an address with a network policy": {"url": URL, "networkPolicy": {"enabled": True}},
    "clients with certificates": {
        "clientAuth": {"ca": CA, "names": ["kube-apiserver", "a b: {{c}}'d"]}
    },
    "clients with certificates, and a CA without an end of line": {
        "clientAuth": {"ca": CA.strip(), "names": ["on"]}
    },
    "clients with certificates of two CAs": {
        "clientAuth": {"ca": CA + OTHER_CA, "names": ["kube-apiserver"]}
    },
    "a network policy": {"networkPolicy": {"enabled": True}},
    "a network policy with addresses": {
        "networkPolicy": {
            "enabled": True,
            "webhookFrom": [{"ipBlock": {"cidr": "192.0.2.0/28"}}],
            "metricsFrom": [],
        }
    },
    "a priority level": {"apiPriority": {"enabled": True}},
    "a priority level for an address": {"url": URL, "apiPriority": {"enabled": True}},
    "monitoring": {"monitoring": {"enabled": True}},
    "monitoring of an address": {"url": URL, "monitoring": {"enabled": True}},
    "monitoring with labels": {
        "monitoring": {
            "enabled": True,
            "labels": {"release": "on", "app.kubernetes.io/name": "not ours"},
            "interval": "500ms",
            "runbooks": "https://example.com/a{{b}}/",
        }
    },
    "a Secret of one's own": configuration(certificates={"rotate": False}),
    "a Secret of one's own with its CA": {
        "ca": CA,
        **configuration(certificates={"rotate": False}),
    },
    "an address without rotation": {"url": URL, **configuration(certificates={"rotate": False})},
    "certificates of cert-manager": {"certManager": {"enabled": True}},
    "certificates of cert-manager, and no rotation": {
        "certManager": {"enabled": True},
        **configuration(certificates={"rotate": False}, deferredResources=[GPU]),
    },
    "certificates of cert-manager for entries that decide about new pods": {
        "certManager": {"enabled": True},
        "creation": "webhook",
        "mask": "webhook",
        "monitoring": {"enabled": True},
    },
    "no gates": configuration(gating="never"),
    "gates where it is tight": configuration(gating="auto"),
    "no gates and the mask by the webhook": {"mask": "webhook", **configuration(gating="never")},
    "an extended resource": configuration(deferredResources=[GPU]),
    "extended resources, some twice": configuration(
        deferredResources=["requests.b.io/x", GPU, "requests.a.io/x", GPU]
    ),
    "an extended resource and the mask by the webhook": {
        "mask": "webhook",
        **configuration(deferredResources=[GPU]),
    },
    "exempt namespaces": configuration(exemptNamespaces=["zoo", "a", "kube-public", "a"]),
    "exempt namespaces, and all kinds": {
        "stamps": True,
        "networkPolicy": {"enabled": True},
        **configuration(exemptNamespaces=["a"], deferredResources=[GPU], gating="never"),
    },
    "its own namespace exempt": configuration(exemptNamespaces=[DEFAULT_NAMESPACE]),
    "no namespace exempt": configuration(exemptNamespaces=[]),
    "trusted users": configuration(trustedUsers=["dq", "admin", "dq"]),
    "trusted users of odd names": configuration(trustedUsers=ODD_NAMES),
    "break-glass groups": configuration(breakGlassGroups=["ops", "system:masters"]),
    "no break-glass group": configuration(breakGlassGroups=[]),
    "break-glass groups of odd names": configuration(breakGlassGroups=ODD_NAMES),
    "the page": configuration(page={"enabled": True}),
    "the page on another port": configuration(page={"enabled": True, "port": 9000}),
    "nodes are judged": configuration(nodeFit="Warn"),
    "reclaim": configuration(elastic={"reclaim": {"mode": "Act"}}),
    "no reclaim": configuration(elastic={"reclaim": {"mode": "Off"}}),
    "reclaim without elastic quotas": configuration(
        elastic={"enabled": False, "reclaim": {"mode": "Act"}}
    ),
    "the port of a page that is off": configuration(page={"port": 9000}),
    "large numbers": configuration(limits={"bodyBytes": 8 * 1024 * 1024, "threads": 4}),
    "rules for Jobs": configuration(
        jobs=[
            {"growth": {"*": "Deny", "cpu": "WithinQuota"}, "selector": {"matchLabels": {"a": "1"}}}
        ]
    ),
    "limited resources": configuration(
        limitedResources=[{"resource": "pods", "matchContains": ["yes", "no"]}],
        requireQuotaForPriority=[{"scopeName": "PriorityClass", "operator": "Exists"}],
    ),
    "a configuration with its kind": configuration(
        apiVersion="deferredquota.io/v1alpha1", kind="Configuration", mustSpecify="off"
    ),
}
PLAIN: Final[Values] = {}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_the_objects_are_those_that_are_rendered(values: Values) -> None:
    made = made_objects(values, *SERVES_ALL)
    mask: Mask = "webhook" if values.get("mask") == "webhook" else "policy"
    assert made == wanted_objects(values, made, mask=mask, home=DEFAULT_NAMESPACE)
    assert made != made_objects(PLAIN, *SERVES_ALL)


def has_two_owners(values: Values) -> bool:
    """Return whether values are refused, as cert-manager is not to keep the certificates alone."""
    given = values.get("configuration", {}).get("certificates", {})
    is_issued = values.get("certManager", {}).get("enabled", False)
    return bool(is_issued and (values.get("url") or given.get("rotate", False)))


NAMES: Final = st.sampled_from(ODD_NAMES) | st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=8
)
NAMESPACES: Final = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
RESOURCES: Final = st.from_regex(r"requests\.[a-z0-9.]{1,8}/[a-z0-9.'\"\\]{1,8}", fullmatch=True)
CONFIGURATIONS: Final = st.fixed_dictionaries(
    {},
    optional={
        "deferredResources": st.lists(RESOURCES, max_size=3),
        "exemptNamespaces": st.lists(NAMESPACES | st.just("kube-system"), max_size=3),
        "trustedUsers": st.lists(NAMES, max_size=3),
        "breakGlassGroups": st.lists(NAMES, max_size=3),
        "gating": st.sampled_from(["always", "auto", "never"]),
        "page": st.fixed_dictionaries({"enabled": st.booleans()}),
        "nodeFit": st.sampled_from(["Off", "Warn", "Deny"]),
        "elastic": st.fixed_dictionaries(
            {},
            optional={
                "enabled": st.booleans(),
                "reclaim": st.fixed_dictionaries({"mode": st.sampled_from(["Off", "Plan", "Act"])}),
            },
        ),
        "certificates": st.fixed_dictionaries({"rotate": st.booleans()}),
        "limits": st.fixed_dictionaries({"bodyBytes": st.integers(2**16, 2**26)}),
    },
)
SETS: Final = st.fixed_dictionaries(
    {},
    optional={
        "configuration": CONFIGURATIONS,
        "mask": st.sampled_from(["auto", "policy", "webhook"]),
        "creation": st.sampled_from(["auto", "policy", "webhook"]),
        "stamps": st.booleans(),
        "url": st.sampled_from(["", URL]),
        "nodeSelector": st.dictionaries(st.just("zone"), NAMES),
        "certManager": st.fixed_dictionaries({"enabled": st.booleans()}),
    },
).filter(lambda values: not has_two_owners(values))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(SETS, NAMESPACES.filter(lambda home: home != "default"))
def test_whatever_the_values_the_objects_are_those_that_are_rendered(
    values: Values, home: str
) -> None:
    made = made_objects(values, *SERVES_ALL, home=home)
    mask: Mask = "webhook" if values.get("mask") == "webhook" else "policy"
    assert made == wanted_objects(values, made, mask=mask, home=home)


def test_the_objects_without_values_are_those_that_are_rendered() -> None:
    made = made_objects(PLAIN, *SERVES_ALL)
    assert made == wanted_objects(PLAIN, made, mask="policy", home=DEFAULT_NAMESPACE)


def test_values_of_a_release_before_are_enough() -> None:
    # as `helm upgrade --reuse-values` has them, which brings the defaults of that release alone
    former = {"clientAuth": None, "apiPriority": None, "certManager": None}
    assert made_objects(former, *SERVES_ALL) == made_objects(PLAIN, *SERVES_ALL)


@pytest.mark.parametrize("home", ["quota-home", "1e3", "on", "123", "deferred-quota-system-2"])
def test_the_objects_of_another_namespace_are_those_that_are_rendered(home: str) -> None:
    values = {"stamps": True, "networkPolicy": {"enabled": True}, **VALUES["exempt namespaces"]}
    made = made_objects(values, *SERVES_ALL, home=home)
    assert made == wanted_objects(values, made, mask="policy", home=home)


def test_an_api_server_without_the_policy_gets_the_mask_by_the_webhook() -> None:
    made = made_objects(PLAIN)
    assert made == wanted_objects(
        PLAIN, made, mask="webhook", home=DEFAULT_NAMESPACE, serves_all=False
    )


@pytest.mark.parametrize(
    ("version", "served", "has_it"),
    [
        ("1.34.0", SERVES_DEVICE_CLASSES, True),
        ("1.34.0", (), False),
        ("1.33.4", SERVES_DEVICE_CLASSES, False),
    ],
)
def test_the_policy_about_device_classes_is_there_where_they_are_served(
    version: str, served: tuple[str, ...], *, has_it: bool
) -> None:
    made = made_objects(PLAIN, "--kube-version", version, *served)
    found = [name for name in made if name.endswith(f"/{DEVICE_CLAIMS_POLICY}")]
    assert len(found) == (2 if has_it else 0)


def test_the_chart_has_no_fault() -> None:
    printed = helm("lint", "--strict", CHART, "--namespace", DEFAULT_NAMESPACE)
    assert "1 chart(s) linted, 0 chart(s) failed" in printed


NOT_SO: Final[dict[str, tuple[Values, str]]] = {
    "an unknown value": ({"imagee": {}}, "additional properties 'imagee' not allowed"),
    "an unknown mask": (
        {"mask": "none"},
        "at '/mask': value must be one of 'auto', 'policy', 'webhook'",
    ),
    "a Secret without a name": (
        {"imagePullSecrets": [{}]},
        "at '/imagePullSecrets/0': missing property 'name'",
    ),
    "an unknown effect": (
        {"tolerations": [{"effect": "Never"}]},
        "at '/tolerations/0/effect': value must be one of 'NoSchedule'",
    ),
    "no replicas": (
        {"webhook": {"replicas": 0}},
        "at '/webhook/replicas': minimum: got 0, want 1",
    ),
    "text for a switch": ({"stamps": "true"}, "at '/stamps': got string, want boolean"),
    "an address without TLS": ({"url": "http://192.0.2.7"}, "at '/url': 'http://192.0.2.7' does"),
    "a tag with a space": ({"image": {"tag": "a b"}}, "at '/image/tag': 'a b' does not match"),
    "a quantity that is none": (
        {"webhook": {"resources": {"limits": {"memory": "1X"}}}},
        "at '/webhook/resources/limits/memory': '1X' does not match",
    ),
    "a peer that is none": (
        {"networkPolicy": {"webhookFrom": ["192.0.2.0/28"]}},
        "at '/networkPolicy/webhookFrom/0': got string, want object",
    ),
    "an unknown field of the configuration": (
        configuration(gateing="never"),
        "at '/configuration': additional properties 'gateing' not allowed",
    ),
    "an unknown word in the configuration": (
        configuration(gating="sometimes"),
        "at '/configuration/gating': value must be one of 'always', 'auto', 'never'",
    ),
    "no configuration": ({"configuration": None}, "missing property 'configuration'"),
    "a CA of clients without names": (
        {"clientAuth": {"ca": CA}},
        "clientAuth: ca and names go together",
    ),
    "names of clients without a CA": (
        {"clientAuth": {"names": ["kube-apiserver"]}},
        "clientAuth: ca and names go together",
    ),
    "a key beside the CA of clients": (
        {"clientAuth": {"ca": CA + KEY, "names": ["kube-apiserver"]}},
        "at '/clientAuth/ca': ",
    ),
    "a name of clients that would be expanded": (
        {"clientAuth": {"ca": CA, "names": ["$(POD_NAME)"]}},
        "at '/clientAuth/names/0': ",
    ),
    "clients of an address": (
        {"url": URL, "clientAuth": {"ca": CA, "names": ["kube-apiserver"]}},
        "at url, start it with --client-ca and --client-name",
    ),
    "cert-manager and the controller": (
        {"certManager": {"enabled": True}, **configuration(certificates={"rotate": True})},
        "certManager: configuration.certificates.rotate is true: one of both keeps the",
    ),
    "cert-manager for an address": (
        {"certManager": {"enabled": True}, "url": URL},
        "certManager: is about a webhook in the cluster",
    ),
    "a CA beside cert-manager's": (
        {"certManager": {"enabled": True}, "ca": CA},
        "leave url and ca empty",
    ),
    "another name of the objects": (
        {"fullnameOverride": "quota"},
        "additional properties 'fullnameOverride' not allowed",
    ),
    "a CA beside the controller's": ({"ca": CA}, "leave ca empty, or set that to false"),
}


@pytest.mark.parametrize(("values", "message"), NOT_SO.values(), ids=NOT_SO.keys())
def test_values_that_cannot_be_are_refused_in_words(values: Values, message: str) -> None:
    assert message in template(values, code=1)


WITHOUT_POLICIES: Final[dict[str, Values]] = {
    "mask: policy": {"mask": "policy"},
    "creation: policy": {"creation": "policy"},
    "stamps": {"stamps": True},
}


@pytest.mark.parametrize(("name", "values"), WITHOUT_POLICIES.items(), ids=WITHOUT_POLICIES)
def test_what_an_older_api_server_does_not_have_is_refused(name: str, values: Values) -> None:
    told = f"{name}: Kubernetes v1.35.4 has no MutatingAdmissionPolicy"
    assert told in template(values, "--kube-version", "1.35.4", code=1)
    template(PLAIN, "--kube-version", "1.35.4")
    assert template(PLAIN, "--kube-version", "1.31.0").count("kind: Job\n") == 0
    old = template(PLAIN, "--kube-version", "1.29.0", code=1)
    assert "chart requires kubeVersion: >=1.30.0-0" in old


@pytest.mark.parametrize("home", ["default", "kube-system"])
def test_a_namespace_of_the_platform_is_refused(home: str) -> None:
    assert "has to have a namespace of its own" in template(PLAIN, code=1, home=home)
