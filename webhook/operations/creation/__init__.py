"""Policies by which API servers decide about new pods, without a call of the webhook.

Belongs here: the admission policies that gate pods and refuse those that do not name what a quota
limits, made from the tables of the core. Does not:
when they are written (`webhook.install`), and what only the webhook can decide: whether some quota
covers a pod, which a policy cannot ask of all quotas together.
"""

from webhook.operations.creation.policies import (
    AUTO_GATE_POLICY,
    COMPONENT,
    GATE_POLICY,
    GATES_ALL,
    MUST_SPECIFY_POLICIES,
    CreationRules,
    creation_objects,
    left_out,
    narrowed_entries,
    without_gating,
)

__all__ = [
    "AUTO_GATE_POLICY",
    "COMPONENT",
    "GATES_ALL",
    "GATE_POLICY",
    "MUST_SPECIFY_POLICIES",
    "CreationRules",
    "creation_objects",
    "left_out",
    "narrowed_entries",
    "without_gating",
]
