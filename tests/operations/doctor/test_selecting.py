from __future__ import annotations

from typing import Any

import pytest

from webhook.jsonfields.reader import FieldReader
from webhook.operations.doctor.namespace_selectors import selection_findings
from webhook.operations.findings import Subject
from webhook.state.webhook_selectors import WebhookSelector, uncovered

LABELS = {"team": "a", "mode": "deferred"}


def an_expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


SELECTORS: dict[str, tuple[dict[str, Any], bool]] = {
    "empty": ({}, True),
    "label": ({"matchLabels": {"team": "a"}}, True),
    "another value": ({"matchLabels": {"team": "b"}}, False),
    "in": (an_expression("team", "In", "a", "b"), True),
    "in, missing": (an_expression("zone", "In", "a"), False),
    "not in": (an_expression("team", "NotIn", "a"), False),
    "not in, missing": (an_expression("zone", "NotIn", "a"), True),
    "exists": (an_expression("team", "Exists"), True),
    "exists, missing": (an_expression("zone", "Exists"), False),
    "does not exist": (an_expression("team", "DoesNotExist"), False),
    "does not exist, missing": (an_expression("zone", "DoesNotExist"), True),
    "all have to hold": ({"matchLabels": {"team": "a"}, **an_expression("mode", "In", "x")}, False),
}


@pytest.mark.parametrize(("selector", "expected"), SELECTORS.values(), ids=SELECTORS)
def test_selectors_select_as_in_the_api_server(selector: dict[str, Any], expected: bool) -> None:
    assert WebhookSelector.read(FieldReader(selector)).matches(LABELS) is expected


def test_no_name_of_a_namespace_that_is_left_out_makes_a_finding() -> None:
    opted_in = an_expression("deferredquota.io/mode", "In", "deferred")["matchExpressions"]
    for name in "a", "b":
        left_out = an_expression("kubernetes.io/metadata.name", "NotIn", name)["matchExpressions"]
        selector = WebhookSelector.read(FieldReader({"matchExpressions": opted_in + left_out}))
        assert not [*selection_findings(selector, Subject("x", "y"), "z", (), is_strict=True)]


RULES: dict[str, tuple[str, str, bool]] = {
    "named": ("pods", "pods", True),
    "everything has no subresources": ("*", "pods/binding", False),
    "everything": ("*", "pods", True),
    "with all subresources": ("pods/*", "pods/binding", True),
    "of all resources": ("*/binding", "pods/binding", True),
    "really everything": ("*/*", "pods/binding", True),
    "all parts and the whole": ("pods/*", "pods", True),
    "another": ("pods/eviction", "pods/binding", False),
    "the resource does not mean its parts": ("pods", "pods/binding", False),
}


@pytest.mark.parametrize(("listed", "wanted", "covers"), RULES.values(), ids=RULES)
def test_rules_cover_as_in_the_api_server(listed: str, wanted: str, covers: bool) -> None:
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [listed]}
    missing = uncovered([FieldReader(rule)], [("CREATE", "", wanted)])
    assert missing == ([] if covers else [f"CREATE {wanted}"])


SCOPES: dict[str, tuple[str, list[str]]] = {
    "all by default": ("", []),
    "all": ("*", []),
    "of namespaces": ("Namespaced", ["CREATE clusterdeferredquotas"]),
    "of the cluster": ("Cluster", ["CREATE pods"]),
}


@pytest.mark.parametrize(("scope", "missing"), SCOPES.values(), ids=SCOPES)
def test_a_rule_covers_what_is_in_its_scope(scope: str, missing: list[str]) -> None:
    every = {name: ["*"] for name in ("operations", "apiGroups", "apiVersions", "resources")}
    rule = {**every, "scope": scope}
    wanted = [("CREATE", "", "pods"), ("CREATE", "deferredquota.io", "clusterdeferredquotas")]
    assert uncovered([FieldReader(rule)], wanted) == missing


VERSIONS: dict[str, tuple[list[str], list[str]]] = {
    "all": (["*"], []),
    "of core": (["v1"], ["CREATE clusterdeferredquotas", "CREATE jobsets"]),
    "of ours": (["v1alpha1"], ["CREATE pods", "CREATE jobsets"]),
    "one that is not served": (
        ["v2"],
        ["CREATE pods", "CREATE clusterdeferredquotas", "CREATE jobsets"],
    ),
    "none": ([], ["CREATE pods", "CREATE clusterdeferredquotas", "CREATE jobsets"]),
}


@pytest.mark.parametrize(("listed", "missing"), VERSIONS.values(), ids=VERSIONS)
def test_a_rule_covers_what_is_in_its_versions(listed: list[str], missing: list[str]) -> None:
    every = {name: ["*"] for name in ("operations", "apiGroups", "resources")}
    wanted = [
        ("CREATE", "", "pods"),
        ("CREATE", "deferredquota.io", "clusterdeferredquotas"),
        ("CREATE", "jobset.x-k8s.io", "jobsets"),
    ]
    assert uncovered([FieldReader({**every, "apiVersions": listed})], wanted) == missing
