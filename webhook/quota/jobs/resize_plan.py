"""Plan the resize of a stored Job: which containers change, what speaks against it, which patches.

A patch names the uid and the version of the Job it was made for, so that the API server refuses
it with a conflict when the Job is another one by then. Resources and resumption go in one patch:
there is no moment in which a Job has its new resources and waits to be resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from webhook.jsonfields.fields import FieldError, InvalidFieldError, key, mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, parse_resource_list
from webhook.quota.jobs.update_validation import JobState, job_state, job_update_errors

_Members: TypeAlias = Mapping[str, object]
_ListName: TypeAlias = Literal["containers", "initContainers"]
Patch: TypeAlias = list[dict[str, object]]

SPEC: Final = "spec.template.spec"
_LISTS: Final[tuple[_ListName, ...]] = ("containers", "initContainers")
_ENDS: Final = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})
"""Conditions after which a Job makes no more pods."""
_OWN_CONTROLLER: Final = "kubernetes.io/job-controller"
_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"

STARTS_BESIDE: Final = (
    "spec.podReplacementPolicy: is not Failed: new pods start while the old ones still end, and"
    " both are charged meanwhile"
)
"""Caution about a Job whose new pods do not wait for the old ones."""


@dataclass(frozen=True, slots=True)
class DesiredResources:
    """Resources that one container is to have; one that is not named stays as it is."""

    requests: ResourceList
    limits: ResourceList


@dataclass(frozen=True, slots=True)
class AmountChange:
    """One amount of a container: `name` is such as "requests.cpu"; without `old` it is new."""

    name: str
    old: Quantity | None
    new: Quantity


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """The resources of one container of the template."""

    list_name: _ListName
    """Which list of the pod's spec has the container."""
    index: int
    """Its place in that list."""
    container: str
    resources: _Members
    """All of its new `resources`."""
    amounts: tuple[AmountChange, ...]
    """What changes of them; at least one."""

    @property
    def field(self) -> str:
        """YAML path of the resources."""
        return f"{SPEC}.{self.list_name}[{self.index}].resources"

    @property
    def pointer(self) -> str:
        """The same as a JSON Pointer."""
        return f"/spec/template/spec/{self.list_name}/{self.index}/resources"


@dataclass(frozen=True, slots=True)
class StoredJob:
    """Facts of a stored Job that decide whether and how it can be resized."""

    namespace: str
    name: str
    uid: str
    version: str
    state: JobState
    """Whether its template can change now."""
    ended: str
    """Its condition that says it makes no more pods; empty while it may make some."""
    is_deleting: bool
    owner: tuple[str, str]
    """Kind and name of the controller that made it, empty if a person did."""
    queue: str
    """The queue of the manager that decides when it runs, empty if it has none."""
    managed_by: str
    """What plays the Job controller for it, empty if that is the cluster's own."""
    waits_for_ends: bool
    """A pod is replaced only when it has ended, not when it is being deleted."""

    @property
    def title(self) -> str:
        """The Job as messages name it."""
        return f"job {self.namespace}/{self.name}"


def stored_job(job: _Members) -> StoredJob:
    """Read a stored Job.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
    """
    root = FieldReader(job)
    meta, spec = root.child("metadata"), root.child("spec")
    managed_by = spec.text("managedBy")
    owners = [one for one in meta.children("ownerReferences") if one.boolean("controller")]
    return StoredJob(
        namespace=meta.text("namespace"),
        name=meta.text("name"),
        uid=meta.text("uid"),
        version=meta.text("resourceVersion"),
        state=job_state(job),
        ended=_ended(root.child("status")),
        is_deleting=meta.has("deletionTimestamp"),
        owner=(owners[0].text("kind"), owners[0].text("name")) if owners else ("", ""),
        queue=meta.string_map("labels").get(_QUEUE_LABEL, ""),
        managed_by="" if managed_by == _OWN_CONTROLLER else managed_by,
        waits_for_ends=spec.text("podReplacementPolicy") == "Failed",
    )


def blockers(facts: StoredJob) -> tuple[str, ...]:
    """Return why a Job cannot be resized at all, each with the field that says so."""
    found: list[str] = []
    if facts.is_deleting:
        found.append(f"{facts.title}: metadata.deletionTimestamp: the Job is being deleted")
    if facts.ended:
        found.append(
            f"{facts.title}: status.conditions: {facts.ended} is True: the Job makes no more pods,"
            " so there is nothing to resize"
        )
    kind, name = facts.owner
    if kind == "JobSet":
        found.append(
            f"{facts.title}: metadata.ownerReferences: JobSet {name} made it, and suspends and"
            " resumes its Jobs by itself: suspend and change the JobSet"
        )
    return tuple(found)


def warnings_for(facts: StoredJob) -> tuple[str, ...]:
    """Return what may come in between, or not be as expected, each with the field that says so."""
    return tuple(f"{facts.title}: {words}" for words in _cautions(facts))


def _cautions(facts: StoredJob) -> Iterator[str]:
    kind, name = facts.owner
    if kind == "CronJob":
        yield (
            f"metadata.ownerReferences: CronJob {name} made it: only this run changes, the next"
            " one is made from spec.jobTemplate of the CronJob"
        )
    elif kind and kind != "JobSet":
        yield f"metadata.ownerReferences: {kind} {name} made it, and may change it back"
    if facts.queue:
        yield (
            f"metadata.labels[{_QUEUE_LABEL}]: {facts.queue}: Kueue decides when it runs: it may"
            " resume the Job early, or suspend it again because its resources changed"
        )
    if facts.managed_by:
        yield (
            f"spec.managedBy: {facts.managed_by} runs it instead of the Job controller, and has to"
            " end its pods when it is suspended"
        )
    if not facts.waits_for_ends and (facts.state.active or not facts.state.suspended):
        yield STARTS_BESIDE


def container_names(job: _Members) -> tuple[str, ...]:
    """Return the names of the containers of the template, without init containers."""
    return tuple(name for part, _, name, _ in _containers(job) if part == "containers")


def plan_changes(
    job: _Members, wanted: Mapping[str, DesiredResources]
) -> tuple[ContainerChange, ...]:
    """Return what changes of a Job's template; nothing where it has those amounts already.

    Args:
        job: The stored Job.
        wanted: Name of a container or init container → what it is to have.

    Raises:
        InvalidFieldError: There is no such container, or a field has the wrong type.
        InvalidQuantityError: A stored amount is not a quantity.
    """
    there = list(_containers(job))
    known = [name for _, _, name, _ in there]
    for name in wanted:
        if name not in known:
            detail = f"has no container {name!r}, it has {', '.join(known) or 'none'}"
            raise InvalidFieldError(f"{SPEC}.containers", detail)
    changes = (
        _change(part, index, name, container, wanted[name])
        for part, index, name, container in there
        if name in wanted
    )
    return tuple(change for change in changes if change.amounts)


def with_changes(job: _Members, changes: Iterable[ContainerChange]) -> _Members:
    """Return the Job as it is after the changes; the one that is passed in stays as it is."""
    spec = dict(mapping(job.get("spec"), "spec"))
    template = dict(mapping(spec.get("template"), "spec.template"))
    pod = dict(mapping(template.get("spec"), SPEC))
    for change in changes:
        path = f"{SPEC}.{change.list_name}"
        containers = list(sequence(pod.get(change.list_name), path))
        container = mapping(containers[change.index], f"{path}[{change.index}]")
        containers[change.index] = {**container, "resources": change.resources}
        pod[change.list_name] = containers
    return {**job, "spec": {**spec, "template": {**template, "spec": pod}}}


def manifest_errors(job: _Members, manifest: _Members) -> list[FieldError]:
    """Return what the API server has against a manifest of a Job that is stored.

    Images and amounts are compared of containers that both have: what else differs may have been
    filled in. It is refused with each setting of the feature gates.

    Raises:
        InvalidFieldError: A field of either has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    known = {name for _, _, name, _ in _containers(job)}
    given = {name: each for _, _, name, each in _containers(manifest) if name in known}
    wanted = {name: _desired(each) for name, each in given.items()}
    images = {name: each["image"] for name, each in given.items() if each.get("image")}
    new = _with_images(with_changes(job, plan_changes(job, wanted)), images)
    # what the API server had against the stored Job is older than the manifest
    before = job_update_errors(job, job)
    return [error for error in job_update_errors(job, new) if error not in before]


def _desired(container: _Members) -> DesiredResources:
    resources = mapping(container.get("resources"), "resources")
    return DesiredResources(
        parse_resource_list(resources.get("requests"), field="resources.requests"),
        parse_resource_list(resources.get("limits"), field="resources.limits"),
    )


def _with_images(job: _Members, images: _Members) -> _Members:
    spec = mapping(job.get("spec"), "spec")
    template = mapping(spec.get("template"), "spec.template")
    lists: dict[str, list[_Members]] = {}
    for part, _, name, container in _containers(job):
        given = {"image": images[name]} if name in images else {}
        lists.setdefault(part, []).append({**container, **given})
    pod = {**mapping(template.get("spec"), SPEC), **lists}
    return {**job, "spec": {**spec, "template": {**template, "spec": pod}}}


def change_errors(job: _Members, changes: Iterable[ContainerChange]) -> tuple[FieldError, ...]:
    """Return what the API server would say to the changes once the Job is suspended and idle.

    Raises:
        InvalidFieldError: A field of the Job has the wrong type.
    """
    spec = {**mapping(job.get("spec"), "spec"), "suspend": True}
    at_rest = {**job, "spec": spec, "status": {}}
    return tuple(dict.fromkeys(job_update_errors(at_rest, with_changes(at_rest, changes))))


def suspend_patch(facts: StoredJob, *, suspend: bool) -> Patch:
    """Return the patch that suspends this very version of a Job, or resumes it."""
    return [*_only(facts), _set("/spec/suspend", suspend)]


def resize_patch(facts: StoredJob, changes: Sequence[ContainerChange], *, resumes: bool) -> Patch:
    """Return the patch that changes this very version of a Job and, if asked to, resumes it."""
    resources = [_set(change.pointer, change.resources) for change in changes]
    return [*_only(facts), *resources, *([_set("/spec/suspend", False)] if resumes else [])]


def suspend_command(facts: StoredJob, *, suspend: bool) -> str:
    """Return the command that suspends a Job by hand, or resumes it."""
    text = f'{{"spec":{{"suspend":{"true" if suspend else "false"}}}}}'
    return f"kubectl patch job {facts.name} -n {facts.namespace} --type=merge -p '{text}'"


def _only(facts: StoredJob) -> Patch:
    """Name the version: not by `test`, whose failure is an invalid patch and no conflict."""
    return [
        {"op": "replace", "path": "/metadata/uid", "value": facts.uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": facts.version},
    ]


def _set(pointer: str, value: object) -> dict[str, object]:
    return {"op": "add", "path": pointer, "value": value}


def _ended(status: FieldReader) -> str:
    for condition in status.children("conditions"):
        if condition.text("status") == "True" and condition.text("type") in _ENDS:
            return condition.text("type")
    return ""


def _containers(job: _Members) -> Iterator[tuple[_ListName, int, str, _Members]]:
    """Yield list, index, name and content of each container of the template."""
    spec = mapping(job.get("spec"), "spec")
    template = mapping(spec.get("template"), "spec.template")
    pod = mapping(template.get("spec"), SPEC)
    for part in _LISTS:
        path = f"{SPEC}.{part}"
        for index, item in enumerate(sequence(pod.get(part), path)):
            where = f"{path}[{index}]"
            yield part, index, FieldReader(item or {}, where).text("name"), mapping(item, where)


def _change(
    part: _ListName, index: int, name: str, container: _Members, wanted: DesiredResources
) -> ContainerChange:
    blank = ContainerChange(part, index, name, {}, ())
    resources = dict(mapping(container.get("resources"), blank.field))
    amounts: list[AmountChange] = []
    for member, new in (("requests", wanted.requests), ("limits", wanted.limits)):
        field = f"{blank.field}.{member}"
        old = parse_resource_list(resources.get(member), field=field)
        differing = {name: amount for name, amount in new.items() if old.get(name) != amount}
        amounts += (AmountChange(key(member, n), old.get(n), q) for n, q in differing.items())
        if differing:
            texts = {name: str(amount) for name, amount in differing.items()}
            resources[member] = {**mapping(resources.get(member), field), **texts}
    return replace(blank, resources=resources, amounts=tuple(amounts))
