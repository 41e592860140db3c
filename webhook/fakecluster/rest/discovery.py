"""Discovery of the API server: version, groups, resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from webhook.kube.api import (
    BINDINGS,
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    Kind,
)

VERSION: Final[Mapping[str, object]] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2-embedded",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
"""The version whose rules are kept; what would name a build is empty."""

_SHORT_NAMES: Final[Mapping[str, list[str]]] = {
    PODS.resource: ["po"],
    RESOURCE_QUOTAS.resource: ["quota"],
    NAMESPACES.resource: ["ns"],
    NODES.resource: ["no"],
    PRIORITY_CLASSES.resource: ["pc"],
    QUOTA_LEDGERS.resource: ["ql"],
    CLUSTER_DEFERRED_QUOTAS.resource: ["cdq"],
    ELASTIC_QUOTAS.resource: ["eq"],
    COMPOSITE_ELASTIC_QUOTAS.resource: ["ceq"],
    "events": ["ev"],
    "configmaps": ["cm"],
    "limitranges": ["limits"],
    "services": ["svc"],
    "serviceaccounts": ["sa"],
    "deployments.apps": ["deploy"],
    "replicasets.apps": ["rs"],
    "statefulsets.apps": ["sts"],
    "daemonsets.apps": ["ds"],
    "cronjobs.batch": ["cj"],
}
_IN_ALL: Final = frozenset(
    {PODS.resource, JOBS.resource, "services", "deployments.apps", "replicasets.apps"}
)
_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]


def about(path: str, kinds: Iterable[Kind]) -> Mapping[str, object] | None:
    """Return what a path says about the server itself; None if it is a path of another sort."""
    match [segment for segment in path.split("/") if segment]:
        case ["version"]:
            return VERSION
        case ["healthz" | "readyz" | "livez"]:
            return {"status": "ok"}
        case ["api", *rest]:
            return _about_core(rest, kinds)
        case ["apis", *rest]:
            return _about_groups(rest, kinds)
        case _:
            return None


def _about_core(rest: list[str], kinds: Iterable[Kind]) -> Mapping[str, object] | None:
    if not rest:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    return _resources(kinds, "", rest[0]) if len(rest) == 1 else None


def _about_groups(rest: list[str], kinds: Iterable[Kind]) -> Mapping[str, object] | None:
    match rest:
        case []:
            return _groups(kinds)
        case [group]:
            return _named_group(kinds, group)
        case [group, version]:
            return _resources(kinds, group, version)
        case _:
            return None


def _groups(kinds: Iterable[Kind]) -> dict[str, object]:
    versions: dict[str, dict[str, None]] = {}
    for kind in kinds:
        if kind.group:
            versions.setdefault(kind.group, {})[kind.version] = None
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, list(found)) for name, found in versions.items()],
    }


def _named_group(kinds: Iterable[Kind], name: str) -> dict[str, object] | None:
    found = {kind.version: None for kind in kinds if kind.group == name}
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(found))} if found else None


def _group(name: str, versions: list[str]) -> dict[str, object]:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resources(kinds: Iterable[Kind], group_name: str, version: str) -> dict[str, object] | None:
    served = [kind for kind in kinds if (kind.group, kind.version) == (group_name, version)]
    if not served:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": served[0].api_version,
        "resources": [entry for kind in served for entry in _entries(kind)],
    }


def _entries(kind: Kind) -> list[dict[str, object]]:
    main: dict[str, object] = {
        **_entry(kind, kind.plural, _VERBS),
        "singularName": kind.kind.lower(),
    }
    if kind.resource in _SHORT_NAMES:
        main["shortNames"] = _SHORT_NAMES[kind.resource]
    if kind.resource in _IN_ALL:
        main["categories"] = ["all"]
    entries = [main]
    if kind.has_status:
        entries.append(_entry(kind, f"{kind.plural}/status", ["get", "patch", "update"]))
    if kind == PODS:
        entries.append(_entry(kind, "pods/resize", ["get", "patch", "update"]))
        entries.append(_entry(BINDINGS, "pods/binding", ["create"]))
        entries.append(_entry(BINDINGS, "bindings", ["create"]))
        eviction = {**_entry(kind, "pods/eviction", ["create"]), "kind": "Eviction"}
        entries.append({**eviction, "group": "policy", "version": "v1"})
    return entries


def _entry(kind: Kind, name: str, verbs: list[str]) -> dict[str, object]:
    return {
        "name": name,
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs,
    }
