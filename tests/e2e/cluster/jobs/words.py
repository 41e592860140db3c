"""Changes of a Job that are refused on a real API server, and our words for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from tests.controlplane.features import Gate
from tests.e2e.cluster.jobs.states import a_job_in_state, put
from tests.e2e.cluster.objects import Object
from tests.e2e.cluster.tenant import Tenant
from tests.quota.jobs.job_updates import SPEC, STARTED, Change, updated
from tests.quota.jobs.job_updates import put as setting
from webhook.quota.jobs import JobGate

RESOURCES, SCHEDULING = JobGate.MUTABLE_RESOURCES, JobGate.MUTABLE_SCHEDULING
GATES_ARE_THERE: Final = pytest.mark.needs(*(Gate(each, is_on=False) for each in JobGate))
GATES_ARE_ON: Final = pytest.mark.needs(*map(Gate, JobGate))
OURS: Final = 'admission webhook "jobs.deferredquota.io" denied the request: '
FIXED: Final = "field is immutable"
CONFIRMED: Final = [{"type": "Suspended", "status": "True"}]
RUNNING: Final[Object] = {"startTime": STARTED, "active": 1}
RAN: Final[Object] = {"startTime": STARTED, "conditions": CONFIRMED}

MAIN: Final = f"{SPEC}.containers[0]"
GROW: Final = setting(f"{SPEC}.containers.0.resources.requests.cpu", "750m")
GROWN: Final = f"{MAIN}.resources.requests.cpu: {FIXED}: from 500m to 750m"
MOVE: Final = setting(f"{SPEC}.nodeSelector.zone", "b")
MOVED: Final = f'{SPEC}.nodeSelector.zone: {FIXED}: from "a" to "b"'

NOT_SUSPENDED: Final = (
    "the Job is not suspended; suspend it first and wait until its pods are gone: kubectl patch"
    ' job train -n {ns} --type=merge -p \'{{"spec":{{"suspend":true}}}}\''
)
ONE_ACTIVE: Final = (
    "pods of it still run; wait until 1 active pod is gone: kubectl get job train -n {ns} -w"
)
UNCONFIRMED: Final = (
    "the Job ran, and the Job controller has not confirmed its suspension yet; try again in a"
    " moment: kubectl wait job train -n {ns} --for=condition=Suspended"
)
FINISHED: Final = "the Job is finished; create a new one"
NEVER: Final = (
    "of a Job's template only the resources of containers and the scheduling directives can change,"
    " while the Job is suspended; create a new Job"
)
NO_POD_AFFINITY: Final = "of the affinity only nodeAffinity can change; create a new Job"
NO_RESOURCES: Final = (
    "the API server lets no resources of a Job change (that takes Kubernetes 1.36, or 1.35 with the"
    f" feature gate {RESOURCES}; here it is off or not there); delete the Job and create it anew"
)
NO_SCHEDULING: Final = (
    "scheduling directives can change only before a Job first runs (afterwards it takes Kubernetes"
    f" 1.36, or 1.35 with the feature gate {SCHEDULING}; here it is off or not there); delete the"
    " Job and create it anew"
)


def said(tenant: Tenant, old: Object, *changes: Change) -> str:
    """Send an update that is refused, and return our words."""
    answer = put(tenant.api, updated(old, *changes))
    assert (answer.code, answer.reason) == (422, "Invalid"), str(answer)
    assert answer.message.startswith(OURS), answer.message
    for internal in ('"Containers"', "&core.", "ObjectMeta"):
        assert internal not in answer.message
    causes = "; ".join(f"{field}: {message}" for _, field, message in answer.causes)
    assert causes == answer.message.removeprefix(OURS)
    return causes


def stored(tenant: Tenant, status: Object, *, suspend: bool = True, name: str = "train") -> Object:
    return a_job_in_state(tenant.api, tenant.namespace, name, status, suspend=suspend)


def node_affinity() -> Object:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [expression]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


DIRECTIVES: Mapping[str, tuple[Change, str]] = {
    "node selector": (MOVE, MOVED),
    "another key of the node selector": (
        setting(f"{SPEC}.nodeSelector.disk", "ssd"),
        f'{SPEC}.nodeSelector.disk: {FIXED}: from none to "ssd"',
    ),
    "node affinity": (
        setting(f"{SPEC}.affinity", {"nodeAffinity": node_affinity()}),
        (
            f"{SPEC}.affinity.nodeAffinity: {FIXED}: from none to"
            ' {"requiredDuringSchedulingIgnoredDuringExecution": {"node...'
        ),
    ),
    "tolerations": (
        setting(f"{SPEC}.tolerations", [{"key": "gpu", "operator": "Exists"}]),
        f'{SPEC}.tolerations: {FIXED}: from none to [{{"key": "gpu", "operator": "Exists"}}]',
    ),
    "scheduling gates": (
        setting(f"{SPEC}.schedulingGates", [{"name": "example.com/gate"}]),
        f'{SPEC}.schedulingGates: {FIXED}: from none to ["example.com/gate"]',
    ),
    "labels": (
        setting("spec.template.metadata.labels.team", "x"),
        f'spec.template.metadata.labels.team: {FIXED}: from none to "x"',
    ),
    "annotations": (
        setting("spec.template.metadata.annotations", {"note": "x"}),
        f"spec.template.metadata.annotations.note: {FIXED}: another value",
    ),
}
RESIZES: Mapping[str, tuple[Change, str]] = {
    "a container": (GROW, GROWN),
    "a new limit": (
        setting(f"{SPEC}.containers.1.resources.limits", {"cpu": "1"}),
        f"{SPEC}.containers[1].resources.limits.cpu: {FIXED}: from none to 1",
    ),
    "an init container": (
        setting(f"{SPEC}.initContainers.0.resources.requests.cpu", "150m"),
        f"{SPEC}.initContainers[0].resources.requests.cpu: {FIXED}: from 100m to 150m",
    ),
    "a sidecar": (
        setting(f"{SPEC}.initContainers.1.resources.requests.cpu", "60m"),
        f"{SPEC}.initContainers[1].resources.requests.cpu: {FIXED}: from 50m to 60m",
    ),
}
