"""The definition of cluster quotas refuses what nobody could evaluate, keeps what is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

import pytest

from tests.install.definitions import faults, parts
from tests.install.manifests import Manifest, the_one
from tests.quota.cluster_quotas import SOUND
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS
from webhook.operations.names import CLUSTER_QUOTA_CRD
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.scope_validation import SCOPES, may_limit

STATUS: Final = {
    "observed": {"uid": "u", "specHash": "h"},
    "hard": {"requests.cpu": "20"},
    "used": {"requests.cpu": "7"},
    "namespaces": [{"name": "team-a", "granted": {"requests.cpu": "7"}}],
    "members": 1,
    "serial": 12,
    "summary": "requests.cpu 7/20",
    "conditions": [{"type": "Counted", "status": "True", "lastTransitionTime": "now"}],
}


def definition() -> Manifest:
    return the_one("CustomResourceDefinition", CLUSTER_QUOTA_CRD)


def version() -> Manifest:
    (found,) = definition()["spec"]["versions"]
    return cast("Manifest", found)


def properties(part: str) -> Manifest:
    schema = version()["schema"]["openAPIV3Schema"]
    return cast("Manifest", schema["properties"][part])


def test_names_are_those_of_the_program() -> None:
    spec, kind = definition()["spec"], CLUSTER_DEFERRED_QUOTAS
    assert (spec["group"], version()["name"]) == (kind.group, kind.version)
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (kind.kind, kind.plural)
    assert spec["names"]["shortNames"] == ["cdq"]
    assert spec["scope"] == "Cluster"
    assert version()["subresources"] == {"status": {}}


def test_columns_show_fields_that_are_there() -> None:
    for column in version()["additionalPrinterColumns"]:
        _, top, name = column["jsonPath"].split(".")
        if top == "status":
            assert properties("status")["properties"][name]["type"] == column["type"], column


def test_a_status_is_kept() -> None:
    assert list(faults(STATUS, properties("status"))) == []


def test_nothing_in_a_status_is_judged() -> None:
    """A rule could refuse what has to be written."""
    forbidden = {"default", "pattern", "enum", "maxLength", "maxItems", "x-kubernetes-validations"}
    for part in parts(properties("status")):
        assert not forbidden & part.keys(), part


def test_nothing_is_filled_in_and_every_list_says_how_it_is_merged() -> None:
    for part in parts(properties("spec")):
        assert "default" not in part
        if part.get("type") == "array":
            assert part["x-kubernetes-list-type"] == "atomic"
            assert "maxItems" in part, "expressions may cost as much as there can be"


@pytest.mark.parametrize("raw", SOUND.values(), ids=SOUND)
def test_what_the_webhook_takes_the_definition_takes(raw: dict[str, Any]) -> None:
    assert list(judged(raw["spec"], properties("spec"), "spec")) == []


def judged(value: object, schema: Manifest, path: str) -> Iterator[str]:
    """Say what a schema refuses: types, names, patterns, lists of values."""
    if "x-kubernetes-int-or-string" in schema:
        assert isinstance(value, (int, str))
    else:
        wanted = {"object": dict, "array": list, "string": str}[schema["type"]]
        if not isinstance(value, wanted):
            yield f"{path}: type"
            return
    if isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value):
            yield f"{path}: pattern"
        if value not in schema.get("enum", (value,)):
            yield f"{path}: enum"
    if isinstance(value, list):
        for item in value:
            yield from judged(item, schema["items"], path)
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (
            f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value
        )
        for name, item in value.items():
            inner = known.get(name, others)
            assert inner is not None, f"{path}.{name} would be dropped"
            yield from judged(item, inner, f"{path}.{name}")


AMOUNTS: Final = (
    "0", "1", "+1", "007", "1.5", ".5", "5.", "100m", "1u", "1n", "1k", "1M", "1G", "1T", "1P",
    "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei", "1e3", "1E3", "1e+3", "1e-3", "1.5e3",
)  # fmt: skip
NO_AMOUNTS: Final = (
    "",
    "-1",
    "many",
    "1 ",
    "1Kb",
    "0x1",
    "1,5",
    "1e",
    "1ee3",
    ".",
    "1Ki2",
    "i",
    "∞",
)


@pytest.mark.parametrize("text", AMOUNTS)
def test_every_way_to_write_an_amount_is_taken(text: str) -> None:
    assert Quantity.parse(text).sign >= 0
    assert pattern().search(text)


@pytest.mark.parametrize("text", NO_AMOUNTS)
def test_what_is_no_amount_is_refused(text: str) -> None:
    assert not pattern().search(text)


def pattern() -> re.Pattern[str]:
    hard = properties("spec")["properties"]["hard"]
    return re.compile(hard["additionalProperties"]["pattern"])


def test_scopes_are_those_that_go_with_deferred_resources() -> None:
    spec = properties("spec")["properties"]
    expressions = spec["scopeSelector"]["properties"]["matchExpressions"]["items"]["properties"]
    fitting = {scope for scope in SCOPES if may_limit(scope, "requests.cpu")}
    assert set(spec["scopes"]["items"]["enum"]) == fitting
    assert set(expressions["scopeName"]["enum"]) == fitting
