"""Judge manifests on a cluster, or on what they say of it themselves."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError, child
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import JOBS, Kind, kind_of
from webhook.kube.files.aside import done_aside
from webhook.kube.files.documents import Document
from webhook.kube.files.positions import Positions
from webhook.kube.kinds import known_kind
from webhook.operations.check.fixes import fix_of
from webhook.operations.check.owners import is_made_by, made_note, owners_of
from webhook.operations.check.state import ClusterState, with_former
from webhook.operations.check.values import (
    SEVERITIES,
    CheckedObject,
    CheckFinding,
    CheckOptions,
    Entry,
    Ignore,
    Location,
    Problem,
    Report,
)
from webhook.operations.findings import Finding
from webhook.operations.findings import Subject as FindingSubject
from webhook.quota.amounts.resources import ResourceList, add, subtract
from webhook.quota.checking.node_fit import NodeFit, nodes_of_daemon_set
from webhook.quota.checking.subjects import (
    JOB_SETS,
    UNCHANGED,
    ManifestObject,
    ReadOptions,
    invalid,
    read_subject,
)
from webhook.quota.checking.template_paths import (
    TemplatePath,
    TemplatePathError,
    template_places,
)
from webhook.quota.checking.values import Issue, Result, Rule, Subject, Terms, Verdict
from webhook.quota.checking.verdicts import Outcome, check_namespace
from webhook.quota.objects.names import SHARED_PREFIX

_CORE: Final = (
    "Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume"
    " PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service"
    " ServiceAccount"
)
_APPS: Final = "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"
_SERVED: Final[Mapping[str, tuple[str, str]]] = {
    "": ("v1", _CORE),
    "apps": ("apps/v1", _APPS),
    "batch": ("batch/v1", "CronJob Job"),
    "extensions": ("", ""),
}
"""API group → its version, and the kinds that an API server has in it; those of other groups may
come from anywhere.

Source: kubernetes v1.36, pkg/controlplane/storageversionhashdata/data.go; deprecation guide.
"""


_WORKLOADS: Final = frozenset(
    {
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    }
)
"""Kinds of Kubernetes whose controllers make pods."""
_MANY: Final = 2000
"""From how many objects on a second process judges some of them."""
_SCOPES: Final = "spec.scopes"
_KUSTOMIZATION: Final = ("kustomize.config.k8s.io", "Kustomization")


def manifest_object(
    raw: Mapping[str, object], namespace: str, *, field: str = ""
) -> ManifestObject:
    """Return an object as it is judged.

    Args:
        raw: The object.
        namespace: That of objects that name none.
        field: YAML path of the object in its document.

    Raises:
        InvalidFieldError: It has no name, or what says what it is cannot be read.
    """
    root = FieldReader(raw, field)
    kind = kind_of(root.text("apiVersion"), root.text("kind"), namespaced=True)
    _check_served(kind, root)
    meta = root.child("metadata")
    name = meta.text("name") or meta.text("generateName")
    if not name:
        raise InvalidFieldError(meta.path("name"), "must be given")
    place = meta.text("namespace") or namespace
    owners_of(raw, field)  # else it is not read before all objects are, without a place in a file
    return ManifestObject(raw, kind.resource, place if kind.namespaced else "", name, field)


def _check_served(kind: Kind, root: FieldReader) -> None:
    """Refuse what no API server knows: what is not known would be admitted."""
    if (kind.group, kind.kind) == _KUSTOMIZATION:
        detail = "a Kustomization is no object of a cluster: check the output of 'kustomize build'"
        raise InvalidFieldError(root.path("kind"), detail)
    if kind.group not in _SERVED:
        return
    version, kinds = _SERVED[kind.group]
    if not version:
        detail = f"Kubernetes has no {kind.api_version} any more"
        raise InvalidFieldError(root.path("apiVersion"), detail)
    if kind.api_version != version:
        raise InvalidFieldError(
            root.path("apiVersion"), f"Kubernetes has {version}, not {kind.api_version}"
        )
    if kind.kind not in kinds.split():
        raise InvalidFieldError(root.path("kind"), f"{version} has no kind {kind.kind}")


_Groups: TypeAlias = dict[str, list[int]]
"""Namespace → indexes of its objects."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """The answers about some namespaces."""

    objects: Mapping[int, CheckedObject]
    """By index."""
    problems: tuple[Problem, ...]


class Checker:
    """Judges manifests on one cluster."""

    def __init__(self, state: ClusterState, options: CheckOptions, positions: Positions) -> None:
        self._state = state
        self._options = options
        self._positions = positions
        self._fit = None if state.view is None else NodeFit(state.view, state.brought_claims)
        self._taken: dict[str, ResourceList] = {}
        """Shared quota → what objects of the namespaces so far take of it."""
        self._problems: list[Problem] = []
        self._workloads: dict[str, set[tuple[str, str]]] = {}
        """Namespace → kind and name of the objects whose pods are judged."""

    def check(self, entries: Sequence[Entry]) -> Report:
        """Judge objects in their order.

        Raises:
            ApiError: The cluster does not answer.
        """
        by_namespace: _Groups = {}
        for index, entry in enumerate(entries):
            one = entry.object
            by_namespace.setdefault(one.namespace, []).append(index)
            if self._has_pods(one):
                self._workloads.setdefault(one.namespace, set()).add((one.kind, one.name))
        own, other = self._shared_out(by_namespace, len(entries))
        with done_aside(lambda: self._judged(other, entries), is_large=bool(other)) as aside:
            judged = [self._judged(own, entries), aside()]
        objects = {index: checked for part in judged for index, checked in part.objects.items()}
        return Report(
            tuple(objects[index] for index in sorted(objects)),
            tuple(problem for part in judged for problem in part.problems),
            (*self._state.unknown, *dict.fromkeys(self._unjudged(entries)), *self._made(entries)),
        )

    def _has_pods(self, one: ManifestObject) -> bool:
        """Return whether pods of a controller of the object are judged."""
        group = one.resource.partition(".")[2]
        is_known = one.kind in _WORKLOADS if group in _SERVED else group == JOB_SETS
        return is_known or any(path.is_about(group, one.kind) for path in self._options.paths)

    def _is_made(self, one: ManifestObject) -> bool:
        """Return whether a controller made an object for another one of the input."""
        workloads = self._workloads.get(one.namespace)
        return workloads is not None and is_made_by(one.raw, workloads)

    def _made(self, entries: Iterable[Entry]) -> Iterator[str]:
        """Yield how many objects are counted with others."""
        count = sum(self._is_made(entry.object) for entry in entries)
        if count:
            yield made_note(count)

    def _unjudged(self, entries: Iterable[Entry]) -> Iterator[str]:
        """Yield which kinds seem to have pods that nothing says where to find, or no namespace."""
        for entry in entries:
            one = entry.object
            group = one.resource.partition(".")[2]
            if group in {*_SERVED, JOB_SETS}:
                continue
            if any(path.is_about(group, one.kind) for path in self._options.paths):
                continue
            places = list(template_places(one.raw))
            yield from (_unjudged_note(group, one.kind, place) for place in places)
            if not places and _is_assumed_inside(one):
                yield (
                    f"{one.kind}.{group} without a namespace is taken to be in namespace"
                    f" {one.namespace}: whether the kind has namespaces is not known"
                )

    def _shared_out(self, groups: _Groups, count: int) -> tuple[_Groups, _Groups]:
        """Share namespaces out to two processes, if they are many and nothing is read for them.

        What shared quotas have left depends on the namespaces before.
        """
        if count < _MANY or not self._state.are_namespaces_apart:
            return groups, {}
        own: _Groups = {}
        other: _Groups = {}
        taken = 0
        for namespace, indexes in groups.items():
            self._state.place(namespace)  # read here, so that both have it
            (own if taken < count // 2 else other)[namespace] = indexes
            taken += len(indexes)
        return own, other

    def _judged(self, groups: _Groups, entries: Sequence[Entry]) -> _Judged:
        self._problems = []
        results: dict[int, Result] = {}
        for namespace, indexes in groups.items():
            results.update(self._namespace(namespace, indexes, entries))
        objects = {index: self._checked(entries[index], one) for index, one in results.items()}
        return _Judged(objects, tuple(self._problems))

    def _namespace(
        self, namespace: str, indexes: Sequence[int], entries: Sequence[Entry]
    ) -> Iterator[tuple[int, Result]]:
        place = self._state.place(namespace)
        subjects: dict[int, Subject] = {}
        for index in indexes:
            entry = entries[index]
            try:
                subject = self._subject(entry, namespace)
            except InvalidFieldError as err:
                location = self._location(entry.document, err.field)
                self._problems.append(Problem(location, err.detail))
            else:
                subjects[index] = subject
        self._state.note_uncounted(namespace, _charged(subjects.values()))
        terms = self._with_taken(place.terms)
        outcome = check_namespace(tuple(subjects.values()), terms, rollouts=self._options.rollouts)
        self._take(terms, outcome)
        for index, result in zip(subjects, outcome.results, strict=True):
            yield index, self._with_nodes(result)

    def _with_taken(self, terms: Terms) -> Terms:
        """Return terms with what other namespaces took of the quotas that they share."""
        if not self._taken:
            return terms
        balances = [
            replace(one, used=add(one.used, self._taken.get(one.name, {})))
            for one in terms.balances
        ]
        return replace(terms, balances=tuple(balances))

    def _take(self, terms: Terms, outcome: Outcome) -> None:
        for one in terms.balances:
            if one.name.startswith(SHARED_PREFIX):
                grown = subtract(outcome.used[one.name], one.used)
                self._taken[one.name] = add(self._taken.get(one.name, {}), grown)

    def _subject(self, entry: Entry, namespace: str) -> Subject:
        one, place = entry.object, self._state.place(namespace)
        root = FieldReader(one.raw, one.field)
        kind = kind_of(root.text("apiVersion"), root.text("kind"), namespaced=True)
        name = root.child("metadata").text("name")
        status = self._state.status_of(kind, namespace, name)
        options = ReadOptions(self._options.rollout, self._options.paths, self._nodes)
        jobs: Mapping[str, Mapping[str, object]] = {}
        if status is not None and kind.group == JOB_SETS:
            jobs = self._state.statuses(JOBS, namespace)
        read = read_subject(one, place.terms, options, status=status, jobs=jobs)
        subject = with_former(read, place)
        if self._is_made(one):
            # of a pod, and of what makes pods, there is nothing else to judge
            subject = replace(subject, groups=(), usage={}, made={}, held=(), issues=())
        if entry.earlier is not None:
            issue = self._already_there(entry, entry.earlier)
            return replace(subject, groups=(), refusals=(issue,))
        if place.is_missing and namespace:
            text = f'namespaces "{namespace}" not found'
            issue = Issue(Rule.NAMESPACE, Verdict.REFUSED, text, child(one.field, "metadata"))
            return replace(subject, refusals=(issue, *subject.refusals))
        if one.resource == "resourcequotas" and name in place.rescoped:
            text = f'ResourceQuota "{name}" is invalid: {_SCOPES}: field is immutable'
            issue = Issue(Rule.INVALID, Verdict.REFUSED, text, child(one.field, _SCOPES))
            return replace(subject, refusals=(issue, *subject.refusals))
        errors = self._state.refusals_of_elastic(one)
        if kind == JOBS and status is not None:
            errors = self._state.refusals_of_job(one)
        if errors:
            issue = invalid(one, errors, child(one.field, errors[0].field))
            return replace(subject, refusals=(issue, *subject.refusals))
        return subject

    def _already_there(self, entry: Entry, earlier: Entry) -> Issue:
        """Return that an object is in the input again: a cluster has one of a name."""
        one, first = entry.object, earlier.object
        place = self._location(earlier.document, first.field)
        text = (
            f'{one.resource} "{one.name}" already exists: it is at {place} too, and is counted as'
            " it is there; kubectl apply would leave the last one"
        )
        field = child(one.field, "metadata")
        return Issue(Rule.DUPLICATE, Verdict.REFUSED, text, field)

    def _nodes(self, pod: Mapping[str, object]) -> int:
        if self._options.nodes is not None:
            return self._options.nodes
        view = self._state.view
        return 1 if view is None else nodes_of_daemon_set(pod, view)

    def _with_nodes(self, result: Result) -> Result:
        is_placed = result.verdict in {Verdict.ADMITTED, Verdict.WAITS}
        subject = result.subject
        if self._fit is None or not is_placed or subject.kind == "DaemonSet":
            return result
        groups = [group for group in subject.groups if group.count]
        if subject.resource in UNCHANGED:
            there = sum(pod.is_assigned for pod in subject.held)
            groups = groups if there < sum(group.count for group in groups) else []
        issues = [issue for group in groups if (issue := self._fit.issue(group)) is not None]
        return replace(result, issues=(*result.issues, *issues))

    def _checked(self, entry: Entry, result: Result) -> CheckedObject:
        one = entry.object
        kept = tuple(
            issue for issue in result.issues if not _is_ignored(issue, entry, self._options.ignored)
        )
        line = entry.document.lines.get(one.field, entry.document.lines.get("", 1))
        groups = result.subject.groups
        return CheckedObject(
            one.kind,
            one.namespace,
            one.name,
            Location(entry.document.file, line, 1, one.field),
            replace(result, issues=kept).verdict,
            sum(group.count for group in groups),
            sum(group.surge for group in groups),
            tuple(self._finding(issue, entry) for issue in kept),
        )

    def _finding(self, issue: Issue, entry: Entry) -> CheckFinding:
        one = entry.object
        subject = FindingSubject(one.kind, one.name, one.namespace)
        severity = SEVERITIES[issue.verdict]
        finding = Finding(issue.rule, severity, subject, issue.text, fix_of(issue, entry))
        location = self._location(entry.document, issue.field or one.field)
        return CheckFinding(finding, issue.verdict, location, issue.quota, issue.shortages)

    def _location(self, document: Document, field: str) -> Location:
        position = self._positions.of(document, field)
        return Location(document.file, position.line, position.column, field)


def _charged(subjects: Iterable[Subject]) -> set[str]:
    """Return the keys of which objects other than pods take something."""
    charges = (charge for one in subjects for charge in (one.usage, one.made))
    return {key for charge in charges for key, amount in charge.items() if amount.sign > 0}


def _is_assumed_inside(one: ManifestObject) -> bool:
    """Return whether an object is taken to be in a namespace that it does not name."""
    root = FieldReader(one.raw, one.field)
    is_known = known_kind(root.text("apiVersion"), root.text("kind")) is not None
    return not (is_known or root.child("metadata").text("namespace"))


def _unjudged_note(group: str, kind: str, place: str) -> str:
    """Return the note about pods of a kind at a place; without an option if none would do."""
    named = f"{kind}.{group}"
    note = f"pods of {named} are not judged"
    text = f"{named}={place}"
    try:
        is_read = named.isprintable() and TemplatePath.parse(text).is_about(group, kind)
    except TemplatePathError:
        is_read = False
    if is_read:
        return f"{note}: --template-path {shlex.quote(text)}"
    return f"{note}, and no --template-path reads them"


def _is_ignored(issue: Issue, entry: Entry, ignored: Iterable[Ignore]) -> bool:
    one = entry.object
    names = entry.key, f"{one.kind}/{one.name}", one.name
    return any(
        each.rule in {"*", issue.rule} and any(fnmatchcase(name, each.pattern) for name in names)
        for each in ignored
    )
