"""Whether others hold the pods of opted-in namespaces too: quota managers, and scheduling gates.

A pod then runs when all of them let it. That works, but may not be intended, and does not show in
our condition of the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import PODS, NotFoundError, Object
from webhook.kube.kinds import Kind, kind_of
from webhook.operations.doctor.check_context import CheckContext, Namespace, unreadable, waiting
from webhook.operations.enable_plan import manager_of_gate
from webhook.operations.findings import Finding, Subject, first_of, information, subject_of, warning
from webhook.operations.names import CUSTOM_RESOURCE_DEFINITIONS, OTHER_MANAGERS
from webhook.operations.server_time import server_time
from webhook.state.well_known import SCHEDULING_GATE

_OLD: Final = timedelta(minutes=5)
_MOST_NAMED: Final = 3
"""Gates named in one finding: one pod may have thousands."""


def other_managers(scene: CheckContext) -> Iterator[Finding]:
    """Look for objects of other quota managers in, or about, namespaces that have opted in.

    Raises:
        NoRightError: Definitions, or the objects of one that is there, may not be read.
        NotInSnapshotError: A snapshot has no definitions.
    """
    opted_in = scene.deferred_namespaces()
    for definition, manager in OTHER_MANAGERS.items() if opted_in else ():
        kind = _kind_served(scene, definition)
        if kind is not None:
            yield from _limiting(scene, kind, manager, opted_in)


def _kind_served(scene: CheckContext, definition: str) -> Kind | None:
    """Return the kind that a definition adds, in its first version that is served."""
    raw = scene.find(CUSTOM_RESOURCE_DEFINITIONS, definition)
    if raw is None:
        return None
    spec = FieldReader(raw).child("spec")
    served = [one.text("name") for one in spec.children("versions") if one.boolean("served")]
    if not served:
        return None
    return kind_of(
        f"{spec.text('group')}/{served[0]}",
        spec.child("names").text("kind"),
        namespaced=spec.text("scope") == "Namespaced",
    )


def _limiting(
    scene: CheckContext, kind: Kind, manager: str, opted_in: list[Namespace]
) -> Iterator[Finding]:
    names = {one.name for one in opted_in}

    def judge(node: FieldReader, subject: Subject) -> Iterator[Finding]:
        for namespace in sorted(names.intersection(_namespaces_of(node, subject))):
            yield warning(
                "managers.two",
                Subject("Namespace", namespace),
                f"{manager} limits its pods too, by {subject}: a pod runs when both let it",
                "Let one of them limit it: delete that object, or run: deferred-quota disable"
                f" {namespace}",
            )

    try:
        yield from scene.judged(kind, scene.objects(kind), judge)
    except NotFoundError:
        return  # its definition went away just now


def _namespaces_of(node: FieldReader, subject: Subject) -> Iterable[str]:
    """Return the namespaces that an object is about: its own, else those that its status lists."""
    if subject.namespace:
        return (subject.namespace,)
    return [one.text("namespace") for one in node.child("status").children("namespaces")]


def other_gates(scene: CheckContext) -> Iterator[Finding]:
    """Look for pods of namespaces that have opted in which wait long behind the gates of others.

    A snapshot has no clock: there all of them are named.

    Raises:
        NoRightError: Pods may not be listed.
    """
    opted_in = {one.name for one in scene.deferred_namespaces()}
    waiting: dict[tuple[str, str], list[tuple[str, datetime | None]]] = {}

    def look(raw: Object) -> Finding | None:
        subject = subject_of(PODS, raw)
        if subject.namespace not in opted_in:
            return None
        try:
            created = FieldReader(raw).child("metadata").timestamp("creationTimestamp")
            for gate in _gates_of_others(raw):
                waiting.setdefault((subject.namespace, gate), []).append((subject.name, created))
        except InvalidFieldError as err:
            return unreadable(subject, err)
        return None

    yield from filter(None, scene.unassigned_pods(look))
    is_live = bool(waiting) and not scene.settings.is_offline
    now = server_time(scene.api, min(opted_in)) if is_live else None
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (namespace, gate), pods in sorted(waiting.items()):
        old = [name for name, created in pods if _is_old(created, now)]
        if old:
            found.setdefault((namespace, manager_of_gate(gate)), {})[gate] = old
    for (namespace, manager), gates in sorted(found.items()):
        yield _waiting(namespace, manager, gates, "for more than 5 minutes " if now else "")


def _gates_of_others(raw: Object) -> list[str]:
    gates = FieldReader(raw).child("spec").children("schedulingGates")
    return [name for name in (gate.text("name") for gate in gates) if name != SCHEDULING_GATE]


def _is_old(created: datetime | None, now: datetime | None) -> bool:
    return created is None or now is None or now - created > _OLD


def _waiting(
    namespace: str, manager: str, gates: Mapping[str, Sequence[str]], since: str
) -> Finding:
    pods = sorted({pod for behind in gates.values() for pod in behind})
    names = first_of(tuple(gates), _MOST_NAMED)
    which, them = ("gate", "it") if len(gates) == 1 else ("gates", "them")
    judge = information if manager else warning
    return judge(
        "gates.others",
        Subject("Namespace", namespace),
        f"{waiting(len(pods))} {since}behind the scheduling {which} {names}, which"
        f" {manager or 'another controller'} has to remove: no quota releases them before",
        f"Look at {manager or f'the controller that removes {them}'}.",
        tuple(pods),
    )
