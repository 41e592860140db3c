"""`deferred-quota usage`: what the pods of manifests are charged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from webhook.cli.exit_codes import InputError
from webhook.cli.files.inputs import Manifest, read_manifests
from webhook.cli.printing.output import print_json, print_table
from webhook.config import Configuration, ConfigurationError, ConfigurationFile, TerminatingPods
from webhook.jsonfields.fields import InvalidFieldError, child, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.operations.check.owners import is_made_by, made_note, owners_of
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, add, to_text
from webhook.quota.charging.deferral import deferred_part
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.charging.workload_pods import PodSet, pods_of, times
from webhook.quota.checking.classes import SYSTEM_CLASSES
from webhook.quota.jobs.validation import negative_errors
from webhook.quota.nodes.kubelet import container_cpu_weights, oom_score_adj, pod_cpu_weight
from webhook.quota.objects.defaults import default_pod
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import DEFERRED_KEYS, is_hugepages
from webhook.quota.objects.qos import effective_qos_class

SCHEMA_VERSION = 1
_ALIASES = frozenset({"cpu", "memory", "ephemeral-storage"})


@dataclass(frozen=True, slots=True)
class Charge:
    """Charge of the pods of one object."""

    manifest: Manifest
    pod: Pod
    """One of them, with the defaults of the API server."""
    kind: str
    namespace: str
    name: str
    pods: int
    per_node: bool
    needs_overhead: bool
    """Whether a RuntimeClass may add overhead that the manifest does not say."""
    each: ResourceList
    """Of one pod."""
    total: ResourceList
    """Of all of them."""


def run(
    filenames: tuple[str, ...],
    recursive: bool,
    namespace: str,
    nodes: int,
    config: Path | None,
    node_memory: Quantity | None,
    output: str,
) -> None:
    """Show what the pods of manifests are charged under a ResourceQuota."""
    configuration = _configured(config)
    deferred = DEFERRED_KEYS | set(configuration.deferred_resources)
    held = deferred if configuration.terminating_pods is TerminatingPods.HOLD else frozenset()
    now = datetime.now(UTC)

    def read(manifest: Manifest) -> Charge | str:
        return _charge(manifest, namespace, nodes, now, held)

    found = read_manifests(filenames, read, recursive=recursive)
    every = [each for each in found if isinstance(each, Charge)]
    charges = list(_owners(every))
    if len(charges) < len(every):
        click.echo(f"note: {made_note(len(every) - len(charges))}", err=True)
    for note in _notes(charges, [each for each in found if isinstance(each, str)], nodes):
        click.echo(f"note: {note}", err=True)
    if output == "json":
        print_json(_report(charges, deferred, node_memory))
    elif charges:
        print_table(_HEAD, _rows(charges, deferred), right=_RIGHT)
        if node_memory is not None:
            click.echo()
            print_table(_NODE_HEAD, _node_rows(charges, node_memory), right=_NODE_RIGHT)


def _configured(config: Path | None) -> Configuration:
    if config is None:
        return Configuration()
    try:
        return ConfigurationFile(config).current
    except ConfigurationError as err:
        raise InputError(str(err)) from err


def _charge(
    manifest: Manifest, namespace: str, nodes: int, now: datetime, held: frozenset[str]
) -> Charge | str:
    """Return what an object's pods are charged, or its kind if it makes none.

    The resources of `held` are charged until a pod is gone, however long it has been terminating.
    """
    root = FieldReader(manifest.object, manifest.field)
    found = pods_of(manifest.object, field=manifest.field)
    if found is None:
        return root.text("kind")
    owners_of(manifest.object, manifest.field)  # read here, where it has a place in a file
    _require_no_negative(found, f"{root.text('kind')} {_name(root.child('metadata'))}")
    pod = Pod.from_object(default_pod(found.pod, field=found.field), field=found.field)
    each = {**usage_of(pod, now=now), **deferred_part(usage_of(pod, now=None), held)}
    count = found.count * nodes if found.per_node else found.count
    total = times(each, count)
    _require_printable({**each, **total}, found.field)
    spec = FieldReader(found.pod, found.field).child("spec")
    return Charge(
        manifest=manifest,
        pod=_with_priority(pod),
        kind=root.text("kind"),
        namespace=root.child("metadata").text("namespace") or namespace,
        name=_name(root.child("metadata")),
        pods=count,
        per_node=found.per_node,
        needs_overhead=spec.has("runtimeClassName") and not spec.has("overhead"),
        each=each,
        total=total,
    )


def _with_priority(pod: Pod) -> Pod:
    """Return the pod with the priority that the API server gives it for a class of Kubernetes."""
    priority = SYSTEM_CLASSES.get(pod.priority_class_name)
    return pod if priority is None else replace(pod, priority=priority)


def _owners(charges: Sequence[Charge]) -> Iterator[Charge]:
    """Yield what no controller made for another object of the input: that one has the pods."""
    workloads: dict[str, set[tuple[str, str]]] = {}
    for charge in charges:
        workloads.setdefault(charge.namespace, set()).add((charge.kind, charge.name))
    for charge in charges:
        if not is_made_by(charge.manifest.object, workloads[charge.namespace]):
            yield charge


def _name(meta: FieldReader) -> str:
    if not meta.text("name") and not meta.text("generateName"):
        raise InvalidFieldError(meta.path("name"), "must be given")
    return meta.text("name") or f"{meta.text('generateName')}*"


def _require_no_negative(pods: PodSet, owner: str) -> None:
    """Refuse what the API server does: amounts that would take away from those of other pods."""
    path = child(pods.field, "spec")
    for error in negative_errors(mapping(pods.pod.get("spec"), path), path):
        raise InvalidFieldError(error.field, f"{error.message} ({owner})")


def _require_printable(resources: ResourceList, field: str) -> None:
    for name, amount in resources.items():
        if not amount.is_storable:
            raise InvalidFieldError(
                child(field, "spec"), f"{name} is more than Kubernetes can print"
            )


def _notes(charges: Sequence[Charge], others: Sequence[str], nodes: int) -> Iterator[str]:
    """Return what the figures leave out; `others` are the kinds that make no pods."""
    if "LimitRange" in others:
        yield "LimitRange objects are not applied; the API server would add their defaults"
    if any(charge.needs_overhead for charge in charges):
        yield "the overhead of a RuntimeClass is not known and not counted"
    if any(charge.per_node for charge in charges):
        yield f"pods of DaemonSets are counted for {nodes} node(s); --nodes changes that"
    if not charges:
        yield "no object in the input makes pods"


def _report(
    charges: Sequence[Charge], deferred: frozenset[str], node_memory: Quantity | None
) -> Mapping[str, object]:
    totals = _totals(charges)
    return {
        "schemaVersion": SCHEMA_VERSION,
        "deferredResources": sorted(deferred),
        "objects": [
            {**_entry(charge), **({} if node_memory is None else _node_entry(charge, node_memory))}
            for charge in charges
        ],
        "namespaces": [
            {"namespace": namespace, "pods": pods, "total": to_text(total)}
            for namespace, (pods, total) in totals.items()
        ],
    }


def _entry(charge: Charge) -> Mapping[str, object]:
    return {
        "file": charge.manifest.document.file,
        "document": charge.manifest.document.number,
        "apiVersion": charge.manifest.object["apiVersion"],
        "kind": charge.kind,
        "namespace": charge.namespace,
        "name": charge.name,
        "pods": charge.pods,
        "perNode": charge.per_node,
        "usage": to_text(charge.each),
        "total": to_text(charge.total),
    }


def _node_entry(charge: Charge, memory: Quantity) -> Mapping[str, object]:
    """Return what a kubelet sets for the pods of an object."""
    pod = charge.pod
    containers = []
    for container in (*pod.init_containers, *pod.containers):
        weights = container_cpu_weights(pod, container)
        containers.append(
            {
                "name": container.name,
                "oomScoreAdj": oom_score_adj(pod, container, memory),
                "cpuWeight": weights.quadratic,
                "cpuWeightLinear": weights.linear,
            }
        )
    return {
        "qosClass": effective_qos_class(pod),
        "podCpuWeight": pod_cpu_weight(pod),
        "containers": containers,
    }


def _totals(charges: Iterable[Charge]) -> dict[str, tuple[int, ResourceList]]:
    """Return pods and usage by namespace, sorted."""
    totals: dict[str, tuple[int, ResourceList]] = {}
    for charge in charges:
        pods, total = totals.get(charge.namespace, (0, {}))
        totals[charge.namespace] = pods + charge.pods, add(total, charge.total)
    return dict(sorted(totals.items()))


_HEAD = ("NAMESPACE", "OBJECT", "RESOURCE", "CHARGED AT", "PER POD", "PODS", "TOTAL")
_RIGHT = (4, 5, 6)


def _rows(charges: Sequence[Charge], deferred: frozenset[str]) -> Iterator[tuple[str, ...]]:
    moments: dict[tuple[str, str], set[str]] = {}
    for charge in charges:
        name, pods = f"{charge.kind}/{charge.name}", str(charge.pods)
        for key in _shown(charge.each):
            amounts = str(charge.each[key]), pods, str(charge.total[key])
            # a pod that is created with a node gets no bind
            moment = "creation" if charge.pod.is_assigned or key not in deferred else "bind"
            moments.setdefault((charge.namespace, key), set()).add(moment)
            yield charge.namespace, name, key, moment, *amounts
    for namespace, (count, total) in _totals(charges).items():
        for key in _shown(total):
            moment = " + ".join(sorted(moments[namespace, key]))
            yield namespace, "(total)", key, moment, "", str(count), str(total[key])


_NODE_HEAD = (
    "NAMESPACE",
    "OBJECT",
    "CONTAINER",
    "QOS CLASS",
    "OOM_SCORE_ADJ",
    "CPU.WEIGHT",
    "OLDER RUNTIMES",
)
_NODE_RIGHT = (4, 5, 6)


def _node_rows(charges: Sequence[Charge], memory: Quantity) -> Iterator[tuple[str, ...]]:
    for charge in charges:
        pod = charge.pod
        first = charge.namespace, f"{charge.kind}/{charge.name}"
        qos, weight = effective_qos_class(pod), str(pod_cpu_weight(pod))
        yield (*first, "(pod)", qos, "", weight, weight)
        for container in (*pod.init_containers, *pod.containers):
            weights = container_cpu_weights(pod, container)
            score = str(oom_score_adj(pod, container, memory))
            both = str(weights.quadratic), str(weights.linear)
            yield (*first, container.name, qos, score, *both)


def _shown(resources: ResourceList) -> list[str]:
    return [key for key in sorted(resources) if key not in _ALIASES and not is_hugepages(key)]
