"""Objects of manifests as they are judged: their pods as the API server makes them of templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from webhook.jsonfields.fields import child
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.workload_pods import PodSet, pods_of
from webhook.quota.checking.classes import ClassError, RuntimeClassError, with_classes
from webhook.quota.checking.limit_ranges import (
    claim_violations,
    joined,
    violations,
    with_defaults,
)
from webhook.quota.checking.object_usage import (
    claim_requests,
    claim_templates,
    made_usage,
    object_usage,
)
from webhook.quota.checking.rollouts import Rollout, surge_of
from webhook.quota.checking.template_paths import TemplatePath, pods_by_path
from webhook.quota.checking.values import Issue, PodGroup, Rule, Subject, Terms, Verdict
from webhook.quota.jobs.job_pods import pods_of_job_set
from webhook.quota.objects.defaults import created_pod, default_pod
from webhook.quota.objects.model import Pod

_Object = Mapping[str, object]

_JOB_SETS = "jobset.x-k8s.io"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How objects are read."""

    rollout: Rollout = Rollout.SURGE
    paths: tuple[TemplatePath, ...] = ()
    nodes: Callable[[_Object], int] = lambda _: 1
    """Number of nodes that run a pod of a DaemonSet."""


@dataclass(frozen=True, slots=True)
class ManifestObject:
    """An object of a manifest."""

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


def read_subject(
    one: ManifestObject, terms: Terms, options: ReadOptions, *, is_new: bool = True
) -> Subject:
    """Read what an object asks of the quotas of its namespace.

    Args:
        one: The object.
        terms: What adds to its pods, and refuses them.
        options: How it is read.
        is_new: Whether there is no object of its name yet.

    Raises:
        InvalidFieldError: A field that is read has the wrong type or an impossible value, or
            there is no container.
        InvalidQuantityError: An amount is not a quantity.
    """
    sets = _pod_sets(one, options)
    usage: ResourceList = {}
    if is_new and one.resource != "pods":
        usage = object_usage(one.raw, one.resource, field=one.field)
    groups: list[PodGroup] = []
    issues = list(_claim_issues(one, terms))
    for pods in sets:
        read = _group(one, pods, terms, options)
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
        issues=tuple(issues),
    )


def _pod_sets(one: ManifestObject, options: ReadOptions) -> tuple[PodSet, ...]:
    root = FieldReader(one.raw, one.field)
    group = root.text("apiVersion").rpartition("/")[0]
    paths = [path for path in options.paths if path.is_about(group, one.kind)]
    if paths:
        return pods_by_path(one.raw, paths, field=one.field)
    if (group, one.kind) == (_JOB_SETS, "JobSet"):
        sets = pods_of_job_set(one.raw)
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


def _group(
    one: ManifestObject, pods: PodSet, terms: Terms, options: ReadOptions
) -> PodGroup | Issue:
    raw = created_pod(pods.pod)
    filled = with_defaults(default_pod(raw, field=pods.field), terms.limit_ranges)
    try:
        filled = with_classes(filled, terms.classes)
    except ClassError as err:
        is_runtime = isinstance(err, RuntimeClassError)
        rule = Rule.RUNTIME_CLASS if is_runtime else Rule.PRIORITY_CLASS
        return _refused(rule, raw, str(err), child(pods.field, err.field))
    pod = replace(Pod.from_object(filled, field=pods.field), namespace=one.namespace)
    for limit_range in terms.limit_ranges:
        errors = violations(pod, limit_range)
        if errors and pods.count:
            field = child(pods.field, "spec.containers")
            return _refused(Rule.LIMIT_RANGE, raw, joined(errors), field)
    surge = surge_of(one.raw, pods.count, options.rollout, field=one.field)
    return PodGroup(pod, filled, pods.count, surge.count, surge.is_needed, pods.field)


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
