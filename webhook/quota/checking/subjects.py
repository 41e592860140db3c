"""Objects of manifests as they are judged: their pods as the API server makes them of templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from webhook.jsonfields.fields import FieldError, InvalidFieldError, child
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList, exceeding
from webhook.quota.charging.pod_usage import ENDED_PHASES
from webhook.quota.charging.workload_pods import PodSet, pods_of
from webhook.quota.checking.classes import ClassError, RuntimeClassError, with_classes
from webhook.quota.checking.field_names import unknown_fields
from webhook.quota.checking.limit_ranges import (
    claim_violations,
    joined,
    violations,
    with_defaults,
)
from webhook.quota.checking.limit_rules import CLUSTER_QUOTAS, cluster_limit_errors, limit_errors
from webhook.quota.checking.name_rules import container_errors, has_good_containers, object_errors
from webhook.quota.checking.object_usage import (
    claim_requests,
    claim_templates,
    made_usage,
    object_usage,
)
from webhook.quota.checking.rollouts import Rollout, surge_of
from webhook.quota.checking.template_paths import TemplatePath, pods_by_path
from webhook.quota.checking.values import Issue, PodGroup, Rule, Subject, Terms, Verdict
from webhook.quota.jobs.capacity import shares_of, shortfalls
from webhook.quota.jobs.equality import check_types
from webhook.quota.jobs.job_fields import TEMPLATE_SHAPE
from webhook.quota.jobs.job_pods import pods_left, pods_of_job_set
from webhook.quota.jobs.policy import Verdict as JobVerdict
from webhook.quota.jobs.policy import rule_for
from webhook.quota.jobs.validation import Allowed, pod_errors
from webhook.quota.objects.defaults import created_pod, default_pod, has_defaults
from webhook.quota.objects.model import Pod

_Object = Mapping[str, object]

JOB_SETS: Final = "jobset.x-k8s.io"
_JOB_SET: Final = f"jobsets.{JOB_SETS}"
_JOBS: Final = frozenset({"jobs.batch", "cronjobs.batch", _JOB_SET})
_ENDS: Final = frozenset({"Completed", "Failed"})
"""Conditions of a JobSet of which no pod comes any more."""
_NO_JOBS: Final[Mapping[str, _Object]] = {}
_METADATA: Final = TEMPLATE_SHAPE.members["metadata"]
UNCHANGED: Final = frozenset({"pods", "jobs.batch"})
"""Resources whose pods no rollout replaces."""
_VALIDATED: Final = frozenset({"", "apps", "batch"})
"""API groups whose objects the API server validates itself."""
_ORDINARY: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_OTHER: Final = frozenset(
    {
        "affinity",
        "ephemeralContainers",
        "nodeSelector",
        "overhead",
        "resourceClaims",
        "schedulingGates",
        "tolerations",
    }
)
"""Fields of a pod's spec that can be wrong besides."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading objects."""

    rollout: Rollout = Rollout.SURGE
    paths: tuple[TemplatePath, ...] = ()
    nodes: Callable[[_Object], int] = lambda _: 1
    """Number of nodes that run a pod of a DaemonSet."""


@dataclass(frozen=True)
class ManifestObject:
    """An object of a manifest. What is wrong with it is found once, although it is asked twice."""

    raw: _Object
    resource: str
    """As error messages name it: "deployments.apps"."""
    namespace: str
    name: str
    field: str = ""
    """YAML path of the object in its document."""

    @property
    def kind(self) -> str:
        """The kind."""
        return FieldReader(self.raw, self.field).text("kind")

    @property
    def is_named(self) -> bool:
        """Whether it has a name, which the API server does not make of `generateName`."""
        return bool(FieldReader(self.raw, self.field).child("metadata").text("name"))

    @cached_property
    def name_errors(self) -> tuple[FieldError, ...]:
        """What is wrong with its name; a name that the API server makes is good."""
        if not self.is_named:
            return ()
        return tuple(object_errors(self.resource, self.name))

    @cached_property
    def limit_errors(self) -> tuple[FieldError, ...]:
        """What the API server finds wrong with it, if it is an object by which others are judged.

        Raises:
            InvalidFieldError: A field has the wrong type.
            InvalidQuantityError: An amount is not a quantity.
        """
        return limit_errors(self.resource, self.raw, field=self.field)

    @cached_property
    def guarded_limit_errors(self) -> tuple[FieldError, ...]:
        """The same where the namespace defers its quotas, so that the webhook judges them too."""
        return limit_errors(self.resource, self.raw, field=self.field, is_guarded=True)


def read_subject(
    one: ManifestObject,
    terms: Terms,
    options: ReadOptions,
    *,
    status: _Object | None = None,
    jobs: Mapping[str, _Object] = _NO_JOBS,
) -> Subject:
    """Read what an object asks of the quotas of its namespace.

    Args:
        one: The object.
        terms: What adds to its pods, and refuses them.
        options: How it is read.
        status: That of the object of its name that is there; None if there is none yet.
        jobs: Name of a Job of a JobSet that is there → its status.

    Raises:
        InvalidFieldError: A field that is read, or one of the metadata or of pods, has the wrong
            type; one that is read has an impossible value; or there is no container.
        InvalidQuantityError: An amount is not a quantity.
    """
    check_types(one.raw.get("metadata"), child(one.field, "metadata"), _METADATA)
    sets = _pod_sets(one, options, jobs)
    is_new = status is None
    if status is not None:
        sets = tuple(_to_run(one, pods, status) for pods in sets)
    usage: ResourceList = {}
    if is_new and one.resource != "pods":
        usage = object_usage(one.raw, one.resource, field=one.field)
    groups: list[PodGroup] = []
    claims = tuple(_claim_issues(one, terms))
    is_claim = one.resource == "persistentvolumeclaims"
    issues = [] if is_claim else list(claims)
    written = [_Written.read(pods) for pods in sets]
    refusals = [*_unknown_fields(one), *_invalid_name(one), *_invalid_limits(one, terms)]
    refusals += [issue for template in written for issue in _invalid_template(one, template)]
    refusals += _job_issues(one, sets, terms) if is_new and not refusals else ()
    for template in () if refusals else written:
        read = _group(one, template, terms, options)
        if isinstance(read, Issue):
            issues.append(read)
        else:
            groups.append(read)
    count = sum(group.count for group in groups)
    made = made_usage(one.raw, one.resource, count, field=one.field) if is_new else {}
    return Subject(
        one.kind,
        one.resource,
        one.namespace,
        one.name,
        tuple(groups),
        usage,
        made,
        is_replaced=options.rollout is Rollout.RECREATE and one.resource not in UNCHANGED,
        refusals=(*refusals, *claims) if is_claim else tuple(refusals),
        issues=tuple(issues),
    )


def _pod_sets(
    one: ManifestObject, options: ReadOptions, jobs: Mapping[str, _Object]
) -> tuple[PodSet, ...]:
    root = FieldReader(one.raw, one.field)
    group = root.text("apiVersion").rpartition("/")[0]
    paths = [path for path in options.paths if path.is_about(group, one.kind)]
    if paths:
        return pods_by_path(one.raw, paths, field=one.field)
    if (group, one.kind) == (JOB_SETS, "JobSet"):
        sets = pods_of_job_set(one.raw, jobs)
        found = tuple(replace(pods, field=child(one.field, pods.field)) for pods in sets)
    else:
        pods = pods_of(one.raw, field=one.field)
        if pods is not None and pods.per_node:
            pods = replace(pods, count=pods.count * options.nodes(pods.pod), per_node=False)
        found = () if pods is None else (pods,)
    if one.kind == "PodTemplate":
        return ()  # none is made of it
    if root.child("spec").has("suspend") and root.child("spec").boolean("suspend"):
        return tuple(replace(pods, count=0) for pods in found)
    return found


def _to_run(one: ManifestObject, pods: PodSet, status: _Object) -> PodSet:
    """Return the pods that run from now on: what has succeeded of a Job is not run again."""
    if one.resource == "jobs.batch":
        return replace(pods, count=pods_left(pods.count, one.raw, status, field=one.field))
    return replace(pods, count=0) if _has_ended(one, status) else pods


def _has_ended(one: ManifestObject, status: _Object) -> bool:
    """Return whether a Pod or a JobSet that is there has ended, and is not run again."""
    if one.resource == "pods":
        return str(status.get("phase")) in ENDED_PHASES
    with suppress(InvalidFieldError):  # what cannot be read of a cluster refuses nothing
        return one.resource == _JOB_SET and any(
            condition.text("type") in _ENDS and condition.text("status") == "True"
            for condition in FieldReader(status).children("conditions")
        )
    return False


@dataclass(frozen=True, slots=True)
class _Written:
    """Pods as their author wrote them, with the defaults of the API."""

    pods: PodSet
    raw: _Object
    pod: Pod

    @classmethod
    def read(cls, pods: PodSet) -> _Written:
        """Read a pod, or a template of pods; raises as `read_subject`."""
        check_types(pods.pod, pods.field, TEMPLATE_SHAPE)
        raw = created_pod(pods.pod)
        pod = Pod.from_object(raw, field=pods.field)
        if not has_defaults(pod):
            raw = default_pod(raw, field=pods.field)
            pod = Pod.from_object(raw, field=pods.field)
        return cls(pods, raw, pod)


def _group(
    one: ManifestObject, written: _Written, terms: Terms, options: ReadOptions
) -> PodGroup | Issue:
    raw, pods = written.raw, written.pods
    filled = with_defaults(raw, terms.limit_ranges)
    try:
        filled = with_classes(filled, terms.classes)
    except ClassError as err:
        is_runtime = isinstance(err, RuntimeClassError)
        rule = Rule.RUNTIME_CLASS if is_runtime else Rule.PRIORITY_CLASS
        return _refused(rule, raw, str(err), child(pods.field, err.field))
    pod = written.pod
    if filled is not raw:
        pod = Pod.from_object(filled, field=pods.field)
    if pod.namespace != one.namespace:
        pod = replace(pod, namespace=one.namespace)
    errors = _pod_faults(filled, pod, "spec") if filled is not raw else []
    if errors and pods.count:
        text = f'Pod "{pod.name or pod.generate_name}" is invalid: {joined(errors)}'
        field = child(pods.field, "spec.containers")
        return Issue(Rule.INVALID, Verdict.REFUSED, text, field)
    for limit_range in terms.limit_ranges:
        against = violations(pod, limit_range)
        if against and pods.count:
            field = child(pods.field, "spec.containers")
            return _refused(Rule.LIMIT_RANGE, raw, joined(against), field)
    surge = surge_of(one.raw, pods.count, options.rollout, field=one.field)
    return PodGroup(pod, filled, pods.count, surge.count, surge.is_needed, pods.field)


def _unknown_fields(one: ManifestObject) -> Iterator[Issue]:
    """Yield the refusal of an object for fields that the API server does not know."""
    found = unknown_fields(one.raw, one.resource)
    if not found:
        return
    version = str(one.raw.get("apiVersion")).rpartition("/")[2]
    words = ", ".join(f'unknown field "{field}"' for field in found)
    text = (
        f'{one.kind} in version "{version}" cannot be handled as a {one.kind}:'
        f" strict decoding error: {words}"
    )
    meant = ", ".join(filter(None, found.values()))
    text += f"; did you mean {meant}?" if meant else ""
    yield Issue(Rule.UNKNOWN_FIELD, Verdict.REFUSED, text, child(one.field, next(iter(found))))


def _invalid_name(one: ManifestObject) -> Iterator[Issue]:
    """Yield the refusal of an object for its name; none for kinds of other groups."""
    group = one.resource.partition(".")[2]
    if group in _VALIDATED and one.name_errors:
        yield invalid(one, one.name_errors, child(one.field, "metadata.name"))


def _invalid_limits(one: ManifestObject, terms: Terms) -> Iterator[Issue]:
    """Yield the refusal of a quota, a LimitRange or a PriorityClass for its own fields."""
    errors = one.guarded_limit_errors if terms.is_deferred else one.limit_errors
    if one.resource == CLUSTER_QUOTAS:
        errors = cluster_limit_errors(one.raw, terms.deferred_keys)
    if errors:
        yield invalid(one, errors, child(one.field, errors[0].field))


def invalid(one: ManifestObject, errors: Iterable[object], field: str) -> Issue:
    """Return the refusal of an object for some errors, in the API server's words."""
    group = one.resource.partition(".")[2]
    kind = f"{one.kind}.{group}" if group else one.kind
    text = f'{kind} "{one.name}" is invalid: {joined(list(map(str, errors)))}'
    return Issue(Rule.INVALID, Verdict.REFUSED, text, field)


def _invalid_template(one: ManifestObject, written: _Written) -> Iterator[Issue]:
    """Yield the refusal of an object for its pods or its template; none for other groups.

    Source: kubernetes v1.36, pkg/apis/core/validation/validation.go ValidatePodTemplateSpec.
    """
    group = one.resource.partition(".")[2]
    if group not in _VALIDATED:
        return
    field = written.pods.field
    place = child(field.removeprefix(one.field).removeprefix("."), "spec")
    errors = _pod_faults(written.raw, written.pod, place)
    if not has_good_containers(written.pod):
        errors += map(str, container_errors(written.pod, place))
    if errors:
        yield invalid(one, errors, child(field, "spec.containers"))


def _job_issues(one: ManifestObject, sets: tuple[PodSet, ...], terms: Terms) -> Iterator[Issue]:
    """Yield why a rule of the cluster refuses a Job that cannot run all its pods at a time."""
    if one.resource not in _JOBS or not terms.jobs:
        return
    labels = FieldReader(one.raw, one.field).child("metadata").string_map("labels")
    rule = rule_for(terms.jobs, labels, terms.labels)
    if rule.unsuspend is not JobVerdict.DENY:
        return
    for short in shortfalls(shares_of(sets), terms.quotas):
        text = f"{short.error.field}: {short.error.detail}"
        yield Issue(Rule.JOB_RULE, Verdict.REFUSED, text, short.error.field, short.quota)


def _pod_faults(raw: _Object, pod: Pod, field: str) -> list[str]:
    """Return what the API server finds wrong with the resources and the affinity of a pod."""
    if _is_plain(raw, pod):
        return []
    spec = raw.get("spec")
    # the cluster may have the feature gate of tolerations that compare
    allowed = Allowed(comparisons=True)
    found = pod_errors(spec if isinstance(spec, Mapping) else {}, field, allowed=allowed)
    return list(dict.fromkeys(map(str, found)))


def _is_plain(raw: _Object, pod: Pod) -> bool:
    """Return whether nothing can be wrong: ordinary amounts, no request above its limit."""
    spec = raw.get("spec")
    if pod.resources is not None or (isinstance(spec, Mapping) and not _OTHER.isdisjoint(spec)):
        return False
    containers = (*pod.containers, *pod.init_containers)
    lists = [amounts for one in containers for amounts in (one.requests, one.limits)]
    are_ordinary = all(
        name in _ORDINARY and amount.nano >= 0
        for amounts in lists
        for name, amount in amounts.items()
    )
    return are_ordinary and not any(exceeding(one.requests, one.limits) for one in containers)


def _refused(rule: Rule, raw: _Object, words: str, field: str) -> Issue:
    meta = FieldReader(raw).child("metadata")
    name = meta.text("name") or meta.text("generateName")
    return Issue(rule, Verdict.REFUSED, f'pods "{name}" is forbidden: {words}', field)


def _claim_issues(one: ManifestObject, terms: Terms) -> Iterator[Issue]:
    """Yield what LimitRanges have against a claim, or against those of a StatefulSet."""
    claims: list[ResourceReader] = []
    if one.resource == "persistentvolumeclaims":
        claims = [ResourceReader(one.raw, one.field)]
    elif one.resource == "statefulsets.apps" and terms.limit_ranges:
        claims = list(claim_templates(one.raw, field=one.field))
    for claim in claims:
        for limit_range in terms.limit_ranges:
            errors = claim_violations(claim_requests(claim), limit_range)
            if errors:
                name = claim.child("metadata").text("name")
                text = f'persistentvolumeclaims "{name}" is forbidden: {joined(errors)}'
                field = claim.child("spec").path("resources")
                yield Issue(Rule.LIMIT_RANGE, Verdict.REFUSED, text, field)
