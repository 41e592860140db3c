"""Random updates of Jobs: a stored Job in any state, and some changes of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st

from tests.builders import Object
from tests.quota.jobs.job_updates import (
    SPEC,
    STARTED,
    Change,
    a_stored_job,
    change_list,
    put,
    resources_of,
    updated,
)
from webhook.quota.jobs import JobGate

GATES: Final = [
    frozenset(each)
    for each in (
        (),
        (JobGate.MUTABLE_RESOURCES,),
        (JobGate.MUTABLE_SCHEDULING,),
        (JobGate.MUTABLE_RESOURCES, JobGate.MUTABLE_SCHEDULING),
    )
]


def _suspended(status: str) -> list[Object]:
    return [{"type": "Suspended", "status": status}]


STATUSES: Final[list[Object]] = [
    {},
    {"conditions": _suspended("True")},
    {"startTime": STARTED, "conditions": _suspended("True")},
    {"startTime": STARTED},
    {"startTime": STARTED, "conditions": _suspended("False")},
    {"startTime": STARTED, "conditions": _suspended("Unknown")},
    {"startTime": STARTED, "conditions": _suspended("True"), "active": 1},
    {"startTime": STARTED, "active": 2},
    {"active": 1},
    {"conditions": _suspended("True"), "terminating": 3},
    {"startTime": STARTED, "succeeded": 1, "failed": 1},
]
"""What a stored Job may say of its pods; all of them can be written by a Job controller."""


def _node_affinity(*values: str) -> Object:
    expression: Object = {"key": "zone", "operator": "In", "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


_MAIN: Final = f"{SPEC}.containers.0"
_POD_AFFINITY: Final = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
}

CHANGES: Final[list[Change]] = [
    put("spec.suspend", True),
    put("spec.suspend", False),
    put("spec.suspend", False),
    put("spec.parallelism", 3),
    put("spec.completions", 5),
    put("spec.backoffLimit", 3),
    put("spec.backoffLimit", -1),
    put("spec.ttlSecondsAfterFinished", 60),
    put("spec.podReplacementPolicy", "Failed"),
    put("metadata.labels", {"a": "b"}),
    put(f"{_MAIN}.resources.requests.cpu", "750m"),
    put(f"{_MAIN}.resources.requests.cpu", "0.5"),
    put(f"{_MAIN}.resources.requests.cpu", "3"),
    put(f"{_MAIN}.resources.requests.cpu", "-1"),
    put(f"{_MAIN}.resources.requests.memory", "512Mi"),
    put(f"{_MAIN}.resources.limits.cpu", "2"),
    put(f"{_MAIN}.resources.limits.cpu", "100m"),
    put(f"{_MAIN}.resources", {}),
    put(f"{_MAIN}.resources.claims", [{"name": "c1"}]),
    put(f"{_MAIN}.resources.claims", [{"name": "zz"}]),
    put(f"{_MAIN}.resources.claims", [{"name": "c1"}, {"name": "c1"}]),
    resources_of("containers.0", requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "1"}),
    resources_of("containers.0", requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "2"}),
    resources_of("containers.0", requests={}, limits={"nvidia.com/gpu": "500m"}),
    resources_of(
        "containers.0", requests={"hugepages-2Mi": "4Mi"}, limits={"hugepages-2Mi": "4Mi"}
    ),
    resources_of("containers.1", requests={"cpu": "200m"}),
    resources_of("containers.1", requests={"fancy": "1"}),
    resources_of("initContainers.0", requests={"cpu": "150m"}, limits={"cpu": "200m"}),
    resources_of("initContainers.0", requests={"cpu": "300m"}, limits={"cpu": "200m"}),
    resources_of("initContainers.1", requests={"cpu": "60m"}),
    put(f"{_MAIN}.image", "registry.example/app:2"),
    put(f"{_MAIN}.env.0.value", "slow"),
    put(f"{_MAIN}.name", "other"),
    put(f"{SPEC}.nodeSelector", {"zone": "b"}),
    put(f"{SPEC}.nodeSelector", {}),
    put(f"{SPEC}.tolerations", [{"key": "gpu", "operator": "Exists"}]),
    put(f"{SPEC}.affinity", _node_affinity("a")),
    put(f"{SPEC}.affinity", _node_affinity()),
    put(f"{SPEC}.affinity", _POD_AFFINITY),
    put(f"{SPEC}.schedulingGates", [{"name": "example.com/gate"}]),
    put(f"{SPEC}.resourceClaims", [{"name": "c1", "resourceClaimName": "one"}]),
    put(f"{SPEC}.priorityClassName", "system-node-critical"),
    put(f"{SPEC}.activeDeadlineSeconds", 60),
    put(f"{SPEC}.schedulerName", "other"),
    put("spec.template.metadata.labels.team", "x"),
    put("spec.template.metadata.labels.app", "other"),
    put("spec.template.metadata.annotations", {"a": "b"}),
    change_list(f"{SPEC}.containers", lambda items: items.reverse()),
    change_list(f"{SPEC}.containers", lambda items: items.pop()),
    put(f"{SPEC}.initContainers", []),
]
"""Changes that can be made in any order, if their objects are still there."""


def random_update(chance: random.Random) -> tuple[Object, Object]:
    """Return a stored Job and the same with up to four changes."""
    old = updated(
        a_stored_job(**chance.choice(STATUSES)),
        put("spec.suspend", chance.random() < 0.85),
    )
    return old, changed(old, chance.sample(CHANGES, chance.choice([1, 1, 1, 2, 2, 3, 4])))


def changed(old: Object, changes: list[Callable[[Object], None]]) -> Object:
    """Return a copy of a Job with all those changes that can be made of it."""
    new = updated(old)
    for change in changes:
        try:
            new = updated(new, change)
        except (KeyError, IndexError):  # what it changes is gone by another change
            continue
    return new


def job_updates() -> st.SearchStrategy[tuple[Object, Object, frozenset[str]]]:
    """Stored Jobs, their updates, and the gates that are on."""
    return st.builds(
        lambda seed, gates: (*random_update(random.Random(seed)), gates),  # noqa: S311
        st.integers(0, 2**32),
        st.sampled_from(GATES),
    )
