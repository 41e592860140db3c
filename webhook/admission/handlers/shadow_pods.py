"""Pods that are created in a namespace in shadow mode: recorded, and allowed.

Users must not notice. Whatever the pod is, and whatever goes wrong, it is allowed at once, without
a warning and without a change. What becomes of the pod, and what deferral would make of it, is
found out later, outside of the request (`state.shadow_attempts`).

A dry run stores nothing and counts for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from webhook.admission.handlers import pods
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.review import AdmissionRequest, Allowed, Denied, Object
from webhook.jsonfields.reader import FieldReader
from webhook.quota.objects.compact import new_pod_size, without_unused
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import dns_label_errors
from webhook.state.shadow_attempts import Attempt
from webhook.state.well_known import CAPACITY_LABEL, MANAGED_PREFIX

_log = logging.getLogger(__name__)

HANDLER: Final = "shadow"
_OBSERVED: Final = Allowed(decision="watched", handler=HANDLER)
_MAX_SHOWN: Final = 253
_TEXT_BYTES: Final = 60
"""What a text takes beside its characters."""
_NOT_OBSERVED: Final = Allowed(decision="not-watched", handler=HANDLER)


def observe(context: HandlerContext, request: AdmissionRequest) -> Allowed:
    """Record that a pod is being created, and allow it."""
    try:
        return _OBSERVED if _observe(context, request) else _NOT_OBSERVED
    except Exception as err:  # noqa: BLE001 - nothing here may fail a request
        _log.warning("creation not watched", extra={"key": request.key, "error": str(err)})
        return _NOT_OBSERVED


def _observe(context: HandlerContext, request: AdmissionRequest) -> bool:
    is_creation = (request.group, request.path, request.operation) == ("", "pods", "CREATE")
    if context.on_creation is None or not is_creation or request.dry_run or request.object is None:
        return False
    if request.namespace in context.policy.exempt_namespaces:
        return False
    if dns_label_errors(request.namespace):  # forged: its record could never be written
        return False
    pod = Pod.from_object(request.object)
    if not pod.uid or pod.namespace != request.namespace:
        return False
    workload = workload_of(request.object, pod)
    pod = _reduced(pod)
    size = new_pod_size(pod)
    if size is None:
        return False
    brief = replace(request, name="", object=None, old_object=None, options=None)
    is_against_rules = partial(_violates_policy, context, brief, pod)
    size += sum(len(text) + _TEXT_BYTES for text in (brief.username, *brief.groups))
    context.on_creation(Attempt(pod, workload, is_against_rules, size))
    return True


def _reduced(pod: Pod) -> Pod:
    """Return no more of a pod than is judged of it later; one of our marks is as good as many."""
    labels = dict(islice(_ours(pod.labels), 1))
    annotations = dict(islice(_ours(pod.annotations), 1))
    return without_unused(pod, labels=labels, annotations=annotations)


def _ours(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return (
        (name, "") for name in given if name.startswith(MANAGED_PREFIX) or name == CAPACITY_LABEL
    )


def _violates_policy(context: HandlerContext, request: AdmissionRequest, pod: Pod) -> bool:
    quotas = context.view.quotas(request.namespace)
    refusal: Denied | None = pods.denied_by_policy(context, request, pod, quotas)
    return refusal is not None and refusal.code != 429  # 429 is undecided


def workload_of(raw: Object, pod: Pod) -> str:
    """Return the owner of a pod: its controller, or itself where its name is not generated.

    A controller that makes up names tries again and again with new ones, for the same pod.
    """
    if not pod.generate_name:
        return f"Pod/{pod.name}"
    for owner in FieldReader(raw).child("metadata").children("ownerReferences"):
        if owner.boolean("controller"):
            kind, name = owner.text("kind"), owner.text("name")
            return f"{kind[:_MAX_SHOWN]}/{name[:_MAX_SHOWN]}"  # which the API server does not limit
    return f"Pod/{pod.generate_name}*"
