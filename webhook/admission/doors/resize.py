"""A pod's resources change in place."""

from __future__ import annotations

from webhook.admission.deadline import Deadline
from webhook.admission.doors import pods
from webhook.admission.doors.context import DoorContext
from webhook.admission.review import AdmissionRequest, Answer
from webhook.quota.ledger import Door


def update(context: DoorContext, request: AdmissionRequest, deadline: Deadline) -> Answer:
    """Charge what the pod grows by; shrinking is free, and given back once it is seen."""
    old, new = pods.read_update(context, request)
    return pods.charge_update(context, request, old, new, Door.RESIZE, deadline)
