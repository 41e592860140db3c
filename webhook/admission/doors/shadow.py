"""Pods that are created in a namespace in shadow mode: looked at, and let through.

Nobody must notice. Whatever the pod, whatever goes wrong, the answer is yes, without a warning and
without a change, and nothing is waited for. What becomes of the pod, and what deferral would make
of it, is found out later, beside the request (`state.shadow_creations`).

A dry run stores nothing and counts for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from webhook.admission.doors import pods
from webhook.admission.doors.context import DoorContext
from webhook.admission.review import AdmissionRequest, Allowed, Denied, Object
from webhook.quota.keeping import lean
from webhook.quota.objects import Pod
from webhook.quota.reading import Node
from webhook.state.names import CAPACITY_LABEL, MARK_PREFIX
from webhook.state.shadow_creations import Attempt

_log = logging.getLogger(__name__)

DOOR: Final = "shadow"
_SEEN: Final = Allowed(decision="watched", door=DOOR)
_SHOWN: Final = 253
_UNSEEN: Final = Allowed(decision="not-watched", door=DOOR)


def observe(context: DoorContext, request: AdmissionRequest) -> Allowed:
    """Take down that a pod is being created. The answer is always the same: go on."""
    try:
        return _SEEN if _observe(context, request) else _UNSEEN
    except Exception as err:  # noqa: BLE001 - nothing here may fail a request
        _log.warning("creation not watched", extra={"key": request.key, "error": str(err)})
        return _UNSEEN


def _observe(context: DoorContext, request: AdmissionRequest) -> bool:
    is_creation = (request.group, request.path, request.operation) == ("", "pods", "CREATE")
    if context.creations is None or not is_creation or request.dry_run or request.object is None:
        return False
    if request.namespace in context.current_rules().exempt_namespaces:
        return False
    pod = Pod.from_object(request.object)
    if not pod.uid or pod.namespace != request.namespace:
        return False
    workload = workload_of(request.object, pod)
    pod = _kept(pod)
    brief = replace(request, object=None, old_object=None)
    is_against_rules = partial(_is_against_rules, context, brief, pod)
    context.creations(Attempt(pod, workload, is_against_rules))
    return True


def _kept(pod: Pod) -> Pod:
    """Return no more of a pod than is judged of it later; one of our marks is as good as many."""
    labels = dict(islice(_ours(pod.labels), 1))
    annotations = dict(islice(_ours(pod.annotations), 1))
    return lean(pod, labels=labels, annotations=annotations)


def _ours(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, "") for name in given if name.startswith(MARK_PREFIX) or name == CAPACITY_LABEL)


def _is_against_rules(context: DoorContext, request: AdmissionRequest, pod: Pod) -> bool:
    quotas = context.view.quotas(request.namespace)
    refusal: Denied | None = pods.refused_by_rules(context, request, pod, quotas)
    return refusal is not None and refusal.code != 429  # that is no answer yet


def workload_of(raw: Object, pod: Pod) -> str:
    """Name who wants a pod: its controller, or it itself where its name is not generated.

    A controller that makes up names tries again and again with new ones, for the same pod.
    """
    if not pod.generate_name:
        return f"Pod/{pod.name}"
    for owner in Node(raw).child("metadata").children("ownerReferences"):
        if owner.boolean("controller"):
            kind, name = owner.text("kind"), owner.text("name")
            return f"{kind[:_SHOWN]}/{name[:_SHOWN]}"  # which the API server does not limit
    return f"Pod/{pod.generate_name}*"
