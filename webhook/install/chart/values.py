"""The values of the chart: one table, from which the defaults, their schema and their page come."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from webhook.config import configuration_schema
from webhook.install.chart.emitting import emit_value
from webhook.install.chart.places import shipped_deployments, shipped_peers
from webhook.install.clients import CLIENT_NAME
from webhook.jsonfields.fields import mapping

Schema: TypeAlias = Mapping[str, Any]

_WIDTH: Final = 100
_SWITCH: Final[Schema] = {"type": "boolean"}


def _list_of(properties: Schema, *required: str) -> Schema:
    """Return the schema of a list of objects with these fields and no others."""
    item = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "array", "items": {**item, "additionalProperties": False}}


_PEERS: Final = _list_of(
    {
        "ipBlock": {"type": "object", "required": ["cidr"]},
        "namespaceSelector": {"type": "object"},
        "podSelector": {"type": "object"},
    }
)
_QUANTITY: Final[Schema] = {
    "type": ["string", "integer", "number"],
    "pattern": r"^[0-9]+(\.[0-9]*)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
    "minimum": 0,
}
_RESOURCES: Final[Schema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        name: {"type": "object", "additionalProperties": _QUANTITY}
        for name in ("requests", "limits")
    },
}
_IN_ONE_LINE: Final = "^[^\u0000-\u001f\u007f-\u009f\u2028\u2029\ufeff]+$"
"""Names that stand in expressions of policies, which YAML could break into lines."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart."""

    path: str
    """Where it stands in the values, with dots."""
    default: object
    schema: Schema
    about: str
    """What it is, for values.yaml and the page of the chart."""


def values() -> tuple[Value, ...]:
    """Return the values, in the order of values.yaml."""
    return (
        Value(
            "image.repository",
            "deferred-quota",
            {"type": "string", "pattern": "^[a-z0-9][A-Za-z0-9._:/-]*$"},
            "Where the image is, without tag.",
        ),
        Value(
            "image.tag",
            "",
            {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"},
            "Tag of the image; empty is the version of the chart.",
        ),
        Value(
            "image.digest",
            "",
            {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "Digest of the image, `sha256:…`, in the place of the tag.",
        ),
        Value(
            "imagePullSecrets",
            [],
            _list_of({"name": {"type": "string", "minLength": 1}}, "name"),
            "Secrets of the namespace with which the image is pulled.",
        ),
        Value(
            "nodeSelector",
            {},
            {"type": "object", "additionalProperties": {"type": "string"}},
            "Labels of the nodes on which pods run.",
        ),
        Value(
            "tolerations",
            [],
            _list_of(
                {
                    **{name: {"type": "string"} for name in ("key", "value")},
                    "operator": {"enum": ["Exists", "Equal", "Lt", "Gt"]},
                    "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                    "tolerationSeconds": {"type": "integer"},
                }
            ),
            "Taints of nodes that pods tolerate.",
        ),
        *(value for item in shipped_deployments().items() for value in _deployment(*item)),
        Value(
            "configuration",
            {},
            _configuration_schema(),
            "The configuration, field by field as in `docs/configuration.md`.",
        ),
        Value(
            "mask",
            "auto",
            {"enum": ["auto", "policy", "webhook"]},
            "What hides deferred resources from the API server's own check: itself (`policy`, 1.36"
            " and later), or the `webhook`. `auto` takes what the API server has.",
        ),
        Value(
            "creation",
            "auto",
            {"enum": ["auto", "policy", "webhook"]},
            "What gates new pods, and refuses those that do not name what a quota limits: the"
            " `webhook`, or policies in the API server (`policy`, 1.36 and later). `auto` takes"
            " policies where the API server has them.",
        ),
        Value(
            "stamps",
            False,
            _SWITCH,
            "Whether bound pods are marked, for `deferred-quota doctor`. Needs 1.36; not for"
            " tenants who do not trust each other (`docs/threat-model.md`).",
        ),
        Value(
            "url",
            "",
            {"type": "string", "pattern": r"^(https://[^/?#@\s]+/?)?$"},
            "`https://HOST:PORT` of a webhook outside of the cluster; then nothing runs in it.",
        ),
        Value(
            "ca",
            "",
            {"type": "string", "pattern": r"^(-----BEGIN CERTIFICATE-----[\s\S]*)?$"},
            "CA, in PEM form, that the API server trusts at `url`, or behind the Service where"
            " `configuration.certificates.rotate` is false. Empty leaves the `caBundle` as it is.",
        ),
        Value(
            "certManager.enabled",
            False,
            _SWITCH,
            "Whether cert-manager keeps the certificates: an Issuer and a Certificate of a CA of"
            " its own, one of the webhook, and the annotation by which its injector writes the"
            " `caBundle`. The controller then keeps none. Needs cert-manager.",
        ),
        Value(
            "clientAuth.ca",
            "",
            {
                "type": "string",
                "pattern": r"^(-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\s*)*$",
            },
            "CA, in PEM form, of the client certificates of API servers, or several: the webhook in"
            " the cluster answers no other clients (`docs/client-auth.md`). Empty: all.",
        ),
        Value(
            "clientAuth.names",
            [],
            {"type": "array", "items": {"type": "string", "pattern": CLIENT_NAME}},
            "Common names of these certificates, with `clientAuth.ca`.",
        ),
        Value(
            "networkPolicy.enabled",
            False,
            _SWITCH,
            "Whether network policies say what may connect to the pods.",
        ),
        Value(
            "networkPolicy.webhookFrom",
            [],
            _PEERS,
            "Peers of the webhook's port: the addresses of the API servers; empty is all.",
        ),
        Value(
            "networkPolicy.metricsFrom",
            shipped_peers()["metrics"],
            _PEERS,
            "Peers of the port of metrics; empty is all.",
        ),
        Value(
            "apiPriority.enabled",
            False,
            _SWITCH,
            "Whether the API server has a priority level for writes of ledgers and Leases. It takes"
            " its part of the concurrency from all other levels of the cluster.",
        ),
        Value(
            "monitoring.enabled",
            False,
            _SWITCH,
            "Whether there are a PrometheusRule and, without `url`, a ServiceMonitor. Needs the"
            " Prometheus operator.",
        ),
        Value(
            "monitoring.labels",
            {},
            {"type": "object", "additionalProperties": {"type": "string"}},
            "Labels of both, by which the operator chooses them.",
        ),
        Value(
            "monitoring.interval",
            "30s",
            {"type": "string", "pattern": "^[1-9][0-9]*(ms|s|m)$"},
            "Time between two scrapes.",
        ),
        Value(
            "monitoring.runbooks",
            "",
            {"type": "string", "pattern": r"^(https?://[^\s]+/)?$"},
            "Where a copy of this repository can be read, as `https://HOST/PATH/`: stands before"
            " the `runbook_url` of each alert.",
        ),
    )


def values_file(table: Sequence[Value]) -> str:
    """Return values.yaml."""
    lines = ["# Written by scripts/chart; do not edit: set values in a file of your own."]
    group = ""
    for value in table:
        *parents, name = value.path.split(".")
        if parents and parents[0] != group:
            lines.append(f"{parents[0]}:")
        group = parents[0] if parents else ""
        indent = 2 * len(parents)
        lines += textwrap.wrap(
            value.about,
            _WIDTH,
            initial_indent=f"{' ' * indent}# ",
            subsequent_indent=f"{' ' * indent}# ",
            break_on_hyphens=False,
        )
        lines += emit_value(name, value.default, indent)
    return "\n".join((*lines, ""))


def values_schema(table: Sequence[Value]) -> str:
    """Return values.schema.json."""
    schema = _object()
    for value in table:
        *parents, name = value.path.split(".")
        parent = schema
        for each in parents:
            parent = parent["properties"].setdefault(each, _object())
            parent["required"] = [*parent["properties"]]
        parent["properties"][name] = {"description": value.about, **value.schema}
        parent["required"] = [*parent["properties"]]
    # what a chart that has this one as a part may pass to all of them
    schema["properties"]["global"] = {"type": "object"}
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    return json.dumps(whole, indent=2, ensure_ascii=True) + "\n"


def values_table(table: Sequence[Value]) -> Iterator[str]:
    """Yield the lines of the table of values, in Markdown."""
    yield "| value | default | meaning |"
    yield "| --- | --- | --- |"
    for value in table:
        default = json.dumps(value.default)
        yield f"| `{value.path}` | `{default}` | {value.about} |"


def _deployment(component: str, deployment: Any) -> Iterator[Value]:
    """Yield the values of a Deployment."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    yield Value(
        f"{component}.replicas",
        deployment["spec"]["replicas"],
        {"type": "integer", "minimum": 1, "maximum": 100},
        f"Replicas of the {component}.",
    )
    yield Value(
        f"{component}.resources",
        container["resources"],
        _RESOURCES,
        f"Requests and limits of a pod of the {component}.",
    )


def _object() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}, "required": []}


def _configuration_schema() -> Schema:
    """Return the schema of the configuration, of which the chart writes the first two fields."""
    schema = dict(configuration_schema())
    properties = dict(mapping(schema["properties"], "properties"))
    for name in ("breakGlassGroups", "exemptNamespaces", "trustedUsers"):
        field = mapping(properties[name], name)
        items = {**mapping(field["items"], "items"), "pattern": _IN_ONE_LINE}
        properties[name] = {**field, "items": items}
    return {**schema, "properties": properties, "required": []}
