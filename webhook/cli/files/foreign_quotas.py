"""Quotas of other projects as those of this one.

| theirs | ours |
| --- | --- |
| `ApplicationAwareResourceQuota` of aaq.kubevirt.io | `ResourceQuota` of its name and namespace |
| `ApplicationAwareClusterResourceQuota` of aaq.kubevirt.io | `ClusterDeferredQuota` |
| `ClusterResourceQuota` of quota.openshift.io | `ClusterDeferredQuota` |
| `ElasticQuota` of scheduling.x-k8s.io | `ElasticQuota` of nos.nebuly.com |

The spec of the first is that of a ResourceQuota. The next two have it under `spec.quota`, beside a
selector of namespaces by labels and by annotations; the latter has no counterpart. What is counted
outside of pods, and the resources of virtual machines (`requests.cpu/vmi`), are left out with a
note.

The last has min and max like ours. There cpu and memory that min or max do not name are none; here
what neither names is not compared, and what max does not name has no ceiling. Of that, and of
resources that no bind is charged for, there is a note.

Source: application-aware-quota v1.4, core/v1alpha1/types.go; openshift/api, quota/v1/types.go;
scheduler-plugins v0.33, apis/scheduling/v1alpha1/types.go, pkg/capacityscheduling/elasticquota.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from webhook.jsonfields.fields import (
    InvalidFieldError,
    InvalidFieldsError,
    child,
    key,
    mapping,
    refuse,
)
from webhook.quota.elastic.derived_quotas import uncharged_resources
from webhook.quota.elastic.elastic_quotas import (
    ElasticQuota,
    elastic_quota_errors,
    read_elastic_quota,
)
from webhook.quota.objects.names import is_deferrable
from webhook.quota.objects.quota_validation import quota_errors

_AAQ: Final = "aaq.kubevirt.io/"
_OPENSHIFT: Final = "quota.openshift.io/"
_SCHEDULER_PLUGINS: Final = "scheduling.x-k8s.io/"
_VIRTUAL_MACHINES: Final = "/vmi"
_OF_THE_SERVER: Final = frozenset(
    {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"}
)
_NOT_DEFERRED: Final = "is left out: limit it by a ResourceQuota in each namespace"
_NO_MACHINES: Final = "is left out: virtual machines are charged as the pods that run them"
_ALWAYS_COMPARED: Final = ("cpu", "memory")
_NOT_CHARGED: Final = "no bind is charged for it: limit it by a ResourceQuota"
_NO_CEILING: Final = "was 0, as it is not set; is now unlimited: set it to keep the limit"
_NOT_COMPARED: Final = "was 0, as it is not set; is now not compared: set it to keep the limit"


@dataclass(frozen=True, slots=True)
class ForeignConversion:
    """A quota of this project, and what of the other one is not in it."""

    quota: Mapping[str, object]
    notes: tuple[tuple[str, str], ...] = ()
    """YAML path of a field, and what became of it."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """YAML path of a value → path of what it was in the other one, where its key is another."""


def convert_foreign_quota(
    raw: Mapping[str, object], *, field: str = ""
) -> ForeignConversion | None:
    """Return a quota of another project as one of this; None where it is none of theirs.

    Args:
        field: Its YAML path, for errors.

    Raises:
        InvalidFieldError: It cannot be read, or says what has no counterpart.
    """
    group, kind = str(raw.get("apiVersion", "")), raw.get("kind")
    if group.startswith(_AAQ) and kind == "ApplicationAwareResourceQuota":
        return _namespaced(raw, field)
    if group.startswith(_SCHEDULER_PLUGINS) and kind == "ElasticQuota":
        return _elastic(raw, field)
    is_cluster_wide = (
        group.startswith(_AAQ) and kind == "ApplicationAwareClusterResourceQuota"
    ) or (group.startswith(_OPENSHIFT) and kind == "ClusterResourceQuota")
    return _cluster_wide(raw, field) if is_cluster_wide else None


def _namespaced(raw: Mapping[str, object], field: str) -> ForeignConversion:
    path = child(field, "spec")
    spec = mapping(raw.get("spec"), path)
    hard, notes = _kept(spec, path, is_cluster_wide=False)
    quota = _quota(raw, "v1", "ResourceQuota", {**spec, "hard": hard})
    refuse(quota_errors(quota), lambda at: child(field, at))
    return ForeignConversion(quota, notes)


def _cluster_wide(raw: Mapping[str, object], field: str) -> ForeignConversion:
    path = child(field, "spec")
    spec = mapping(raw.get("spec"), path)
    inner = child(path, "quota")
    given = mapping(spec.get("quota"), inner)
    hard, notes = _kept(given, inner, is_cluster_wide=True)
    selector = mapping(spec.get("selector"), child(path, "selector"))
    if errors := [*_selector_errors(selector, child(path, "selector"))]:
        raise InvalidFieldsError(errors)
    if not hard:
        raise InvalidFieldError(child(inner, "hard"), "has no deferred resource")
    ours = {"namespaceSelector": selector["labels"], **given, "hard": hard}
    quota = _quota(raw, "deferredquota.io/v1alpha1", "ClusterDeferredQuota", ours)
    refuse(
        quota_errors({**quota, "spec": {**given, "hard": hard}}),
        lambda at: child(inner, at.removeprefix("spec.")),
    )
    moved = {key(path, name): key(inner, name) for name in given}
    moved[child(path, "namespaceSelector")] = child(path, "selector.labels")
    return ForeignConversion(quota, notes, moved)


def _elastic(raw: Mapping[str, object], field: str) -> ForeignConversion:
    path = child(field, "spec")
    spec = mapping(raw.get("spec"), path)
    quota = _quota(raw, "nos.nebuly.com/v1alpha1", "ElasticQuota", dict(spec))
    refuse(elastic_quota_errors(quota), lambda at: child(field, at))
    read = read_elastic_quota(quota)
    return ForeignConversion(quota, tuple(_notes_of(read, path)))


def _notes_of(quota: ElasticQuota, path: str) -> Iterator[tuple[str, str]]:
    for name in uncharged_resources(quota):
        field = "min" if name in quota.min else "max"
        yield key(child(path, field), name), _NOT_CHARGED
    for name in _ALWAYS_COMPARED:
        if quota.max and name not in quota.max:
            yield key(child(path, "max"), name), _NO_CEILING
        elif name not in quota.names:
            yield key(child(path, "min"), name), _NOT_COMPARED


def _quota(
    raw: Mapping[str, object], api_version: str, kind: str, spec: Mapping[str, object]
) -> dict[str, object]:
    metadata = {
        name: value
        for name, value in mapping(raw.get("metadata"), "metadata").items()
        if name not in _OF_THE_SERVER
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _kept(
    spec: Mapping[str, object], path: str, *, is_cluster_wide: bool
) -> tuple[dict[str, object], tuple[tuple[str, str], ...]]:
    """Return the limits that stay, and notes of the others."""
    here = child(path, "hard")
    hard = dict(mapping(spec.get("hard"), here))
    notes = tuple(_left_out(frozenset(hard), here, is_cluster_wide=is_cluster_wide))
    gone = {field for field, _ in notes}
    return {name: value for name, value in hard.items() if key(here, name) not in gone}, notes


def _left_out(names: Set[str], here: str, *, is_cluster_wide: bool) -> Iterator[tuple[str, str]]:
    for name in sorted(names):
        if name.endswith(_VIRTUAL_MACHINES):
            yield key(here, name), _NO_MACHINES
        elif is_cluster_wide and not is_deferrable(name):
            yield key(here, name), _NOT_DEFERRED


def _selector_errors(selector: Mapping[str, object], path: str) -> Iterator[InvalidFieldError]:
    if mapping(selector.get("annotations"), child(path, "annotations")):
        detail = "has no counterpart: select namespaces by labels"
        yield InvalidFieldError(child(path, "annotations"), detail)
    if selector.get("labels") is None:
        yield InvalidFieldError(child(path, "labels"), "must be given; {} selects every namespace")
    mapping(selector.get("labels"), child(path, "labels"))
