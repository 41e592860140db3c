"""Kubernetes objects as the core sees them: frozen, typed, only the fields that quota reads.

An absent field and `null` mean the same, as for the API server: empty text, no items, None for
numbers and times. Unknown fields are not looked at. A field of the wrong type raises an
InvalidFieldError (InvalidQuantityError for amounts) that names its YAML path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import datetime
from hashlib import sha256
from typing import TypeVar, cast

from webhook.quota.amounts.quantity import InvalidQuantityError
from webhook.quota.amounts.resource_reader import ResourceReader, StoredResourceReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.objects.names import MAX_NAME_BYTES, QUOTA_RESERVED
from webhook.quota.objects.scheduler_messages import says_pool_used_up

_T = TypeVar("_T")

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""Set by a kubelet on the API server's copy of a static pod."""

_CLASS_LENGTH = 64
"""Of `status.qosClass`; no class is as long."""

COUNTED_NAMES = 32
"""Resources of different names that a pod may ask for to be counted by each of them."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container or init container and what it asks for."""

    name: str
    requests: ResourceList
    limits: ResourceList
    restartable: bool = False
    """An init container that keeps running beside the containers: a sidecar."""


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """Report of a kubelet about a container that it has given resources to."""

    name: str
    requests: ResourceList
    limits: ResourceList
    allocated: ResourceList
    """Requests that the node has set aside, perhaps before they are in force."""


@dataclass(frozen=True, slots=True)
class PodResources:
    """Requests and limits of the pod as a whole, `spec.resources`."""

    requests: ResourceList
    limits: ResourceList


@dataclass(frozen=True, slots=True)
class PodStatusResources:
    """Report of a kubelet about the pod as a whole, as `ContainerStatus` is about a container."""

    requests: ResourceList
    limits: ResourceList
    allocated: ResourceList


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as quota looks at it."""

    namespace: str
    name: str
    generate_name: str
    uid: str
    resource_version: str
    """Empty before the pod is stored."""
    created: datetime | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    deletion_timestamp: datetime | None
    """When the grace period that was asked for at the deletion ends; None if not deleted."""
    deletion_grace_period_seconds: int | None
    node_name: str
    """Empty while the pod is unassigned."""
    priority: int | None
    priority_class_name: str
    active_deadline_seconds: int | None
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    overhead: ResourceList
    """What the RuntimeClass adds to every pod."""
    resources: PodResources | None
    """None if `spec.resources` is absent, which is not the same as an empty one."""
    scheduling_gates: tuple[str, ...]
    cross_namespace_affinity: bool
    """Whether an affinity or anti-affinity term reaches into other namespaces."""
    phase: str
    qos_class: str
    """`status.qosClass` as it came; empty when absent. A client can forge it at creation, in any
    length: what is longer than a class is cut."""
    resize_infeasible: bool
    """Whether the node has said that it can never grant the resize that was asked for."""
    statuses: Mapping[str, ContainerStatus]
    """By container name; only containers whose status has `resources`."""
    reported: PodStatusResources | None = None
    """None unless the pod has resources as a whole, and its node has reported some."""
    resize_verdict_outdated: bool = False
    """Whether `resize_infeasible` was said of an earlier resize than the one asked for now."""
    never_preempts: bool = False
    """Whether no pod is evicted for it whatever its priority: its `preemptionPolicy` is Never."""
    in_group: bool = False
    """Whether it names a PodGroup, by the priority of which its scheduler may evict others."""
    has_many_names: bool = False
    """Whether the pod names more resources than any node has; see `pods.charged_to`."""
    is_unplaced: bool = False
    """Whether the pod waits, the scheduler has tried to place it in vain, and nominates no node."""
    is_nominated: bool = False
    """Whether the pod waits, and is to get a node when others have left it."""
    is_bind_refused: bool = False
    """Whether it waits although the scheduler had found a node at its last try, because its elastic
    pool was used up at the bind."""
    is_reported_unreserved: bool = False
    """Whether our condition says that no quota is reserved for it."""
    summarized_usage: ResourceList | None = None
    """Its charge while it is eligible, where summaries stand for its containers; else None."""
    _usage: ResourceList | None = dataclass_field(
        default=None, init=False, repr=False, compare=False
    )
    """The charge of the pod while it is eligible, kept by `pod_usage.usage_of`."""
    _earned_qos: str = dataclass_field(default="", init=False, repr=False, compare=False)
    """The class that its spec earns, kept by `qos.qos_class`."""

    @property
    def key(self) -> str:
        """Return "namespace/name"."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_assigned(self) -> bool:
        """Return whether the pod has a node, whatever its phase."""
        return self.node_name != ""

    @property
    def may_preempt(self) -> bool:
        """Return whether pods of other tenants may be evicted for it: of no class, for one.

        For a PodGroup none is while one of its pods never preempts.

        Source: kubernetes v1.36, pkg/scheduler/framework/preemption/types.go newPodGroupPreemptor.
        """
        return not self.never_preempts and (self.in_group or (self.priority or 0) > 0)

    @property
    def is_gated(self) -> bool:
        """Return whether a scheduling gate keeps the scheduler away from the pod."""
        return bool(self.scheduling_gates)

    @property
    def is_deleting(self) -> bool:
        """Return whether the pod's deletion has been asked for."""
        return self.deletion_timestamp is not None

    @property
    def is_mirror(self) -> bool:
        """Return whether the pod mirrors a static pod, which runs whatever the API server says."""
        return MIRROR_ANNOTATION in self.annotations

    @classmethod
    def from_object(cls, raw: Mapping[str, object], *, field: str = "") -> Pod:
        """Read a pod from its API object.

        Nothing is defaulted: see `defaults.default_pod` for manifests that no API server has
        seen.

        Args:
            raw: The decoded object.
            field: YAML path of the object itself, such as `object`, for messages.

        Raises:
            InvalidFieldError: A field that is read has the wrong type.
            InvalidQuantityError: An amount is not a quantity.
        """
        return cls._read(ResourceReader(raw, field))

    @classmethod
    def from_stored(cls, raw: Mapping[str, object], *, field: str = "") -> Pod:
        """Read a pod that the API server has stored, as `from_object` does.

        An amount that cannot be read for its size is `UNCOUNTABLE`: the pod is there, and what it
        asks of other resources has to be counted.

        Raises:
            InvalidFieldError: A field that is read has the wrong type.
            InvalidQuantityError: An amount is not a quantity for the API server either.
        """
        return _read_stored(cls._read, raw, field)

    @classmethod
    def _read(cls, node: ResourceReader) -> Pod:
        meta, spec, status = node.child("metadata"), node.child("spec"), node.child("status")
        containers, init_containers = _containers(spec), _init_containers(spec)
        resources = _pod_resources(spec)
        asking: list[Container | PodResources] = [*containers, *init_containers]
        if resources is not None:
            asking.append(resources)
        return cls(
            namespace=meta.text("namespace"),
            name=meta.text("name"),
            generate_name=meta.text("generateName"),
            uid=meta.text("uid"),
            resource_version=meta.text("resourceVersion"),
            created=meta.timestamp("creationTimestamp"),
            labels=meta.string_map("labels"),
            annotations=meta.string_map("annotations"),
            deletion_timestamp=meta.timestamp("deletionTimestamp"),
            deletion_grace_period_seconds=meta.integer("deletionGracePeriodSeconds"),
            node_name=node_name_of(spec),
            priority=spec.integer("priority"),
            priority_class_name=spec.text("priorityClassName"),
            active_deadline_seconds=spec.integer("activeDeadlineSeconds"),
            containers=containers,
            init_containers=init_containers,
            overhead=spec.resource_list("overhead"),
            resources=resources,
            scheduling_gates=tuple(gate.text("name") for gate in spec.children("schedulingGates")),
            cross_namespace_affinity=_reaches_other_namespaces(spec),
            phase=status.text("phase"),
            qos_class=status.text("qosClass")[:_CLASS_LENGTH],
            resize_infeasible=_is_resize_infeasible(status),
            resize_verdict_outdated=_is_resize_verdict_outdated(meta, status),
            statuses=_statuses(status),
            reported=_reported(spec, status),
            never_preempts=spec.text("preemptionPolicy") == "Never",
            in_group=is_in_group(spec),
            has_many_names=_has_many_names(asking),
            is_unplaced=is_unplaced(spec, status),
            is_nominated=is_nominated(spec, status),
            is_bind_refused=is_bind_refused(spec, status),
            is_reported_unreserved=is_reported_unreserved(status),
        )


@dataclass(frozen=True, slots=True)
class ScopeExpression:
    """One expression of a `scopeSelector`, as it was written."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()

    @classmethod
    def from_object(cls, raw: Mapping[str, object], *, field: str = "") -> ScopeExpression:
        """Read an expression from a `matchExpressions` or `matchScopes` item.

        Raises:
            InvalidFieldError: A field has the wrong type.
        """
        return _scope_expression(ResourceReader(raw, field))


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """A ResourceQuota: what its owner wrote and what the platform last counted."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    annotations: Mapping[str, str]
    hard: ResourceList
    """`spec.hard`: key → ceiling. A key that is missing is not limited."""
    scopes: tuple[str, ...]
    expressions: tuple[ScopeExpression, ...]
    """`spec.scopeSelector.matchExpressions`; a pod has to match all of them and all scopes."""
    status_hard: ResourceList
    """The ceilings that the API server's own quota check compares with."""
    status_used: ResourceList
    _spec_hash: str = dataclass_field(default="", init=False, repr=False, compare=False)
    _compiled: object = dataclass_field(default=None, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """Return "namespace/name"."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_shared(self) -> bool:
        """Return whether several namespaces share it: its name is one that no object can have."""
        return "/" in self.name

    @property
    def spec_hash(self) -> str:
        """Return hex text that is the same for specs that mean the same, in every process.

        Ceilings count by value (`1` is `1000m`), scopes as a set, expressions as written.
        """
        if not self._spec_hash:
            object.__setattr__(self, "_spec_hash", _spec_hash(self))
        return self._spec_hash

    def with_limits(
        self,
        hard: ResourceList,
        *,
        status_hard: ResourceList,
        status_used: ResourceList,
        annotations: Mapping[str, str],
    ) -> ResourceQuota:
        """Return the same revision of the quota with some of its limits."""
        kept = replace(
            self,
            hard=hard,
            status_hard=status_hard,
            status_used=status_used,
            annotations=annotations,
        )
        object.__setattr__(kept, "_spec_hash", self.spec_hash)
        return kept

    def compiled(self, compile_scopes: Callable[[ResourceQuota], _T]) -> _T:
        """Return what is made of its scopes, once; it is as large as they are, and goes with it."""
        if self._compiled is None:
            object.__setattr__(self, "_compiled", compile_scopes(self))
        return cast("_T", self._compiled)

    @classmethod
    def from_object(cls, raw: Mapping[str, object], *, field: str = "") -> ResourceQuota:
        """Read a quota from its API object.

        Args:
            raw: The decoded object.
            field: YAML path of the object itself, such as `object`, for messages.

        Raises:
            InvalidFieldError: A field that is read has the wrong type.
            InvalidQuantityError: An amount is not a quantity.
        """
        return cls._read(ResourceReader(raw, field))

    @classmethod
    def from_stored(cls, raw: Mapping[str, object], *, field: str = "") -> ResourceQuota:
        """Read a quota that the API server has stored, as `Pod.from_stored` reads a pod."""
        return _read_stored(cls._read, raw, field)

    @classmethod
    def _read(cls, node: ResourceReader) -> ResourceQuota:
        meta, spec, status = node.child("metadata"), node.child("spec"), node.child("status")
        selector = spec.child("scopeSelector")
        return cls(
            namespace=meta.text("namespace"),
            name=meta.text("name"),
            uid=meta.text("uid"),
            resource_version=meta.text("resourceVersion"),
            annotations=meta.string_map("annotations"),
            hard=spec.resource_list("hard"),
            scopes=spec.strings("scopes"),
            expressions=tuple(map(_scope_expression, selector.children("matchExpressions"))),
            status_hard=status.resource_list("hard"),
            status_used=status.resource_list("used"),
        )


def _read_stored(read: Callable[[ResourceReader], _T], raw: Mapping[str, object], field: str) -> _T:
    try:
        return read(ResourceReader(raw, field))
    except InvalidQuantityError as err:
        if not err.is_too_large:
            raise
    return read(StoredResourceReader(raw, field))


def node_name_of(spec: ResourceReader) -> str:
    """Read the node of a pod; a name that no node can have is cut, and stays one.

    The API server stores whatever a Binding names, in any length.
    """
    return spec.text("nodeName")[: MAX_NAME_BYTES + 1]


def _containers(spec: ResourceReader) -> tuple[Container, ...]:
    return tuple([_container(node, restartable=False) for node in spec.children("containers")])


def _init_containers(spec: ResourceReader) -> tuple[Container, ...]:
    return tuple(
        [
            _container(node, restartable=node.text("restartPolicy") == "Always")
            for node in spec.children("initContainers")
        ]
    )


def _container(node: ResourceReader, *, restartable: bool) -> Container:
    resources = node.child("resources")
    return Container(
        node.text("name"),
        resources.resource_list("requests"),
        resources.resource_list("limits"),
        restartable,
    )


def _has_many_names(asking: Iterable[Container | PodResources]) -> bool:
    lists = [amounts for one in asking for amounts in (one.requests, one.limits)]
    if sum(map(len, lists)) <= COUNTED_NAMES:
        return False
    return len({name for amounts in lists for name in amounts}) > COUNTED_NAMES


def _pod_resources(spec: ResourceReader) -> PodResources | None:
    if not spec.has("resources"):
        return None
    resources = spec.child("resources")
    return PodResources(resources.resource_list("requests"), resources.resource_list("limits"))


_CONTAINER_STATUS_LISTS = ("containerStatuses", "initContainerStatuses")


def _statuses(status: ResourceReader) -> Mapping[str, ContainerStatus]:
    """Index statuses by container name; of a repeated name the last stands, even without resources.

    Source: kubernetes v1.36, component-helpers/resource/helpers.go AggregateContainerRequests.
    """
    found: dict[str, ContainerStatus] = {}
    for node in (item for lists in _CONTAINER_STATUS_LISTS for item in status.children(lists)):
        name = node.text("name")
        if node.has("resources"):
            found[name] = _container_status(node, name)
        else:
            found.pop(name, None)
    return found


def _reported(spec: ResourceReader, status: ResourceReader) -> PodStatusResources | None:
    if not (
        spec.has("resources") and (status.has("resources") or status.has("allocatedResources"))
    ):
        return None
    resources = status.child("resources")
    return PodStatusResources(
        resources.resource_list("requests"),
        resources.resource_list("limits"),
        status.resource_list("allocatedResources"),
    )


def _container_status(node: ResourceReader, name: str) -> ContainerStatus:
    resources = node.child("resources")
    return ContainerStatus(
        name,
        resources.resource_list("requests"),
        resources.resource_list("limits"),
        node.resource_list("allocatedResources"),
    )


def _is_resize_infeasible(status: ResourceReader) -> bool:
    """Return whether the first pending-resize condition gives that reason, whatever its status.

    Source: kubernetes v1.36, component-helpers/resource/helpers.go IsPodResizeInfeasible.
    """
    for condition in status.children("conditions"):
        if condition.text("type") == "PodResizePending":
            return condition.text("reason") == "Infeasible"
    return False


def _is_resize_verdict_outdated(meta: ResourceReader, status: ResourceReader) -> bool:
    """Compare generations; a node that names none is taken to speak of the present resize."""
    if not status.has("conditions"):
        return False
    generation = meta.integer("generation")
    for condition in status.children("conditions"):
        if condition.text("type") == "PodResizePending":
            observed = condition.integer("observedGeneration")
            return None not in (observed, generation) and (observed or 0) < (generation or 0)
    return False


def is_in_group(spec: ResourceReader) -> bool:
    """Return whether a pod names a PodGroup, whether there is such a one or not."""
    return spec.child("schedulingGroup").text("podGroupName") != ""


def is_unplaced(spec: ResourceReader, status: ResourceReader) -> bool:
    """Return whether a pod without a node is one that the scheduler has found none for.

    Its condition says so with the reason Unschedulable, or SchedulerError where it had found one
    and the pod could not be bound; a pod behind gates was not tried. A nominated node is one that
    it is to get when others have left.

    Source: kubernetes v1.36, pkg/scheduler/schedule_one.go handleSchedulingFailure.
    """
    failure = _scheduling_failure(spec, status)
    tried = failure is not None and failure.text("reason") != "SchedulingGated"
    return tried and not status.text("nominatedNodeName")


def is_nominated(spec: ResourceReader, status: ResourceReader) -> bool:
    """Return whether a pod without a node is to get one when others have left it."""
    return bool(status.text("nominatedNodeName")) and not spec.text("nodeName")


def is_bind_refused(spec: ResourceReader, status: ResourceReader) -> bool:
    """Return whether a pod has no node because its elastic pool was used up at the bind.

    An extender is asked about nodes that all else is right about, so a pod that it refuses for the
    pool is one as well. Other refusals do not count: a pod that can never be bound would have
    others evicted for it again and again.

    Source: as of `is_unplaced`; a bind fails with the reason SchedulerError.
    """
    failure = _scheduling_failure(spec, status)
    return failure is not None and says_pool_used_up(
        failure.text("reason"), failure.text("message")
    )


def _scheduling_failure(spec: ResourceReader, status: ResourceReader) -> ResourceReader | None:
    """Return the condition by which a pod without a node has not been scheduled."""
    if spec.text("nodeName") or not status.has("conditions"):
        return None
    for condition in status.children("conditions"):
        if condition.text("type") == "PodScheduled":
            return condition if condition.text("status") == "False" else None
    return None


def is_reported_unreserved(status: ResourceReader) -> bool:
    """Return whether our condition of a pod is False."""
    if not status.has("conditions"):
        return False
    return any(
        one.text("type") == QUOTA_RESERVED and one.text("status") == "False"
        for one in status.children("conditions")
    )


_AFFINITIES = ("podAffinity", "podAntiAffinity")


def _reaches_other_namespaces(spec: ResourceReader) -> bool:
    """Return whether a pod (anti-)affinity term names namespaces or selects them, even by `{}`.

    Source: kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go usesCrossNamespacePodAffinity.
    """
    if not spec.has("affinity"):
        return False
    affinity = spec.child("affinity")
    terms = [term for kind in _AFFINITIES for term in _affinity_terms(affinity.child(kind))]
    return True in [_reaches_out(term) for term in terms]


def _affinity_terms(affinity: ResourceReader) -> list[ResourceReader]:
    preferred = affinity.children("preferredDuringSchedulingIgnoredDuringExecution")
    return [
        *affinity.children("requiredDuringSchedulingIgnoredDuringExecution"),
        *(weighted.child("podAffinityTerm") for weighted in preferred),
    ]


def _reaches_out(term: ResourceReader) -> bool:
    namespaces = term.strings("namespaces")
    term.child("namespaceSelector")  # has to be an object
    return bool(namespaces) or term.has("namespaceSelector")


def _scope_expression(node: ResourceReader) -> ScopeExpression:
    return ScopeExpression(node.text("scopeName"), node.text("operator"), node.strings("values"))


def _spec_hash(quota: ResourceQuota) -> str:
    meaning = (
        # hex, because Python refuses to print huge integers in decimal
        sorted((key, format(amount.nano, "x")) for key, amount in quota.hard.items()),
        sorted(set(quota.scopes)),
        [(each.scope_name, each.operator, each.values) for each in quota.expressions],
    )
    return sha256(ascii(meaning).encode()).hexdigest()[:32]
