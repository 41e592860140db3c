"""Which fields of a Job may change while its template is open, and how the new ones are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.builders import Object, a_container
from tests.quota.jobs.job_updates import (
    SPEC,
    STARTED,
    TEMPLATE,
    Change,
    a_stored_job,
    change_list,
    drop,
    every,
    immutable,
    invalid,
    put,
    resources_of,
    twice,
    updated,
)
from webhook.jsonfields.fields import FieldError
from webhook.quota.jobs import JobGate, job_update_errors

OPEN_JOB = a_stored_job(conditions=[{"type": "Suspended", "status": "True"}])
LABELS = f"{TEMPLATE}.metadata.labels"
NODE_AFFINITY: Object = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        ]
    }
}
POD_AFFINITY: Object = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "train"}}}
    ]
}
GPU = "nvidia.com/gpu"

PASSES: Mapping[str, Change] = {
    "container resources": resources_of("containers.0", requests={"cpu": "2"}),
    "init container resources": resources_of("initContainers.0", requests={"cpu": "2"}),
    "sidecar resources": resources_of("initContainers.1", requests={"cpu": "2"}),
    "both": every(
        resources_of("containers.1", requests={"cpu": "2"}, limits={"cpu": "2"}),
        resources_of("initContainers.0", requests={"memory": "1Gi"}),
    ),
    "add a GPU": resources_of("containers.0", requests={GPU: "1"}, limits={GPU: "1"}),
    "add a GPU by limit only": resources_of("containers.0", requests={}, limits={GPU: "1"}),
    "remove all resources": drop(f"{SPEC}.containers.0.resources"),
    "a declared claim": put(f"{SPEC}.containers.0.resources.claims", [{"name": "c1"}]),
    "tolerations": put(f"{SPEC}.tolerations", [{"key": "gpu", "operator": "Exists"}]),
    "node affinity": put(f"{SPEC}.affinity", {"nodeAffinity": NODE_AFFINITY}),
    "scheduling gates": put(f"{SPEC}.schedulingGates", [{"name": "example.com/wait"}]),
    "template annotations": put("spec.template.metadata.annotations", {"a": "b"}),
    "a template label": put(f"{LABELS}.team", "x"),
    "template name": put("spec.template.metadata.name", "x"),
    "parallelism": put("spec.parallelism", 9),
    "another spelling": resources_of(
        "containers.0",
        requests={"cpu": "0.5", "memory": "1048576Ki"},
        limits={"cpu": "1000m", "memory": "1073741824"},
    ),
    "node selector": put(f"{SPEC}.nodeSelector", {"zone": "b"}),
    "active deadline": put("spec.activeDeadlineSeconds", 60),
    "backoff limit": put("spec.backoffLimit", 1),
    "time to live": put("spec.ttlSecondsAfterFinished", 0),
    "pod replacement policy": put("spec.podReplacementPolicy", "Failed"),
    "metadata": put("metadata.labels", {"a": "b"}),
}

TEMPLATE_SPEC_IS_IMMUTABLE: Mapping[str, Change] = {
    "resource claims": put(f"{SPEC}.resourceClaims", [{"name": "c1"}]),
    "pod-level resources": put(f"{SPEC}.resources", {"requests": {"cpu": "2"}}),
    "empty pod-level resources": put(f"{SPEC}.resources", {}),
    "overhead": put(f"{SPEC}.overhead", {"cpu": "10m"}),
    "swap two containers": change_list(f"{SPEC}.containers", lambda each: each.reverse()),
    "rename a container": put(f"{SPEC}.containers.1.name", "other"),
    "rename a container, with resources": every(
        put(f"{SPEC}.containers.1.name", "other"),
        resources_of("containers.1", requests={"cpu": "2"}),
    ),
    "add a container": change_list(
        f"{SPEC}.containers", lambda each: each.append(a_container("more"))
    ),
    "remove a container": change_list(f"{SPEC}.containers", lambda each: each.pop()),
    "drop the init containers": drop(f"{SPEC}.initContainers"),
    "empty the init containers": put(f"{SPEC}.initContainers", []),
    "image": put(f"{SPEC}.containers.0.image", "registry.example/app:2"),
    "resize policy": put(
        f"{SPEC}.containers.0.resizePolicy",
        [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    ),
    "environment": put(f"{SPEC}.containers.0.env", [{"name": "MODE", "value": "slow"}]),
    "priority class": put(f"{SPEC}.priorityClassName", "high"),
    "deadline of the pods": put(f"{SPEC}.activeDeadlineSeconds", 60),
    "scheduler": put(f"{SPEC}.schedulerName", "other"),
    "topology spread": put(f"{SPEC}.topologySpreadConstraints", [{"maxSkew": 1}]),
    "pod affinity": put(f"{SPEC}.affinity", {"podAffinity": POD_AFFINITY}),
    "pod affinity beside node affinity": put(
        f"{SPEC}.affinity", {"nodeAffinity": NODE_AFFINITY, "podAffinity": POD_AFFINITY}
    ),
    "node name": put(f"{SPEC}.nodeName", "node-1"),
    "node selector and image": every(
        put(f"{SPEC}.nodeSelector", {"zone": "b"}),
        put(f"{SPEC}.containers.0.image", "registry.example/app:2"),
    ),
    "runtime class": put(f"{SPEC}.runtimeClassName", "gvisor"),
    "restart policy of an init container": put(f"{SPEC}.initContainers.0.restartPolicy", "Always"),
    "security context that is no longer set": put(f"{SPEC}.securityContext", None),
}


@pytest.mark.parametrize("change", PASSES.values(), ids=PASSES.keys())
def test_an_open_template_takes(change: Change) -> None:
    assert job_update_errors(OPEN_JOB, updated(OPEN_JOB, change)) == []


@pytest.mark.parametrize(
    "change", TEMPLATE_SPEC_IS_IMMUTABLE.values(), ids=TEMPLATE_SPEC_IS_IMMUTABLE.keys()
)
def test_even_an_open_template_keeps(change: Change) -> None:
    assert job_update_errors(OPEN_JOB, updated(OPEN_JOB, change)) == [immutable(SPEC)]


MARKED_AND_STARTED = a_stored_job(
    startTime=STARTED, conditions=[{"type": "Suspended", "status": "True"}]
)
SCHEDULING = (
    "tolerations",
    "node affinity",
    "scheduling gates",
    "node selector",
)


@pytest.mark.parametrize("name", SCHEDULING)
def test_without_the_scheduling_gate_a_started_job_keeps_its_directives(name: str) -> None:
    new = updated(MARKED_AND_STARTED, PASSES[name])
    gates = {JobGate.MUTABLE_RESOURCES}

    assert job_update_errors(MARKED_AND_STARTED, new, gates) == [immutable(SPEC)]


@pytest.mark.parametrize("name", ["template annotations", "a template label", "template name"])
def test_where_resources_may_change_template_metadata_is_not_compared(name: str) -> None:
    new = updated(MARKED_AND_STARTED, PASSES[name])

    assert job_update_errors(MARKED_AND_STARTED, new, {JobGate.MUTABLE_RESOURCES}) == []


RESOURCES = (
    "container resources",
    "init container resources",
    "sidecar resources",
    "both",
    "add a GPU",
    "add a GPU by limit only",
    "remove all resources",
    "a declared claim",
)


@pytest.mark.parametrize("name", RESOURCES)
def test_without_the_resource_gate_resources_are_part_of_the_template(name: str) -> None:
    new = updated(MARKED_AND_STARTED, PASSES[name])
    errors = job_update_errors(MARKED_AND_STARTED, new, {JobGate.MUTABLE_SCHEDULING})

    assert errors == [immutable(TEMPLATE)]


IMMUTABLE: Mapping[str, tuple[Change, str]] = {
    "completions": (put("spec.completions", 5), "spec.completions"),
    "selector": (
        put("spec.selector", {"matchLabels": {"job-name": "train"}}),
        "spec.selector",
    ),
    "completion mode": (put("spec.completionMode", "Indexed"), "spec.completionMode"),
    "pod failure policy": (put("spec.podFailurePolicy", {"rules": []}), "spec.podFailurePolicy"),
    "managed by": (put("spec.managedBy", "example.com/x"), "spec.managedBy"),
}
OF_INDEXED: Mapping[str, Change] = {
    "spec.backoffLimitPerIndex": put("spec.backoffLimitPerIndex", 1),
    "spec.successPolicy": put("spec.successPolicy", {"rules": [{}]}),
}


@pytest.mark.parametrize("job", [OPEN_JOB, a_stored_job(startTime=STARTED)], ids=["open", "closed"])
@pytest.mark.parametrize(("change", "field"), IMMUTABLE.values(), ids=IMMUTABLE.keys())
def test_in_every_state_a_job_keeps(job: Object, change: Change, field: str) -> None:
    assert job_update_errors(job, updated(job, change)) == [immutable(field)]


@pytest.mark.parametrize("field", OF_INDEXED)
def test_what_goes_with_indexes_cannot_be_given_later(field: str) -> None:
    new = updated(OPEN_JOB, OF_INDEXED[field])
    needs_indexes = invalid(field, "requires indexed completion mode")

    assert job_update_errors(OPEN_JOB, new) == [needs_indexes, needs_indexes, immutable(field)]
    assert job_update_errors(INDEXED, updated(INDEXED, OF_INDEXED[field])) == [immutable(field)]


def test_immutable_fields_are_listed_around_the_template() -> None:
    changes = [change for change, _ in IMMUTABLE.values()]
    image = TEMPLATE_SPEC_IS_IMMUTABLE["image"]
    # the mode stays, an Indexed Job may change its completions
    changes.remove(IMMUTABLE["completion mode"][0])
    new = updated(OPEN_JOB, *changes, *OF_INDEXED.values(), image)

    assert [
        error.field
        for error in job_update_errors(OPEN_JOB, new)
        if error.detail == immutable("").detail
    ] == [
        "spec.completions",
        "spec.selector",
        "spec.template.spec",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
        "spec.managedBy",
        "spec.successPolicy",
    ]


INDEXED = updated(OPEN_JOB, put("spec.completionMode", "Indexed"))
IN_TANDEM = invalid("spec.completions", "can only be modified in tandem with spec.parallelism")
COMPLETIONS: Mapping[str, tuple[Sequence[Change], list[FieldError]]] = {
    "with parallelism": ([put("spec.completions", 7), put("spec.parallelism", 7)], []),
    "alone": ([put("spec.completions", 7)], [IN_TANDEM]),
    "to what parallelism is already": ([put("spec.completions", 2)], []),
    "with another parallelism": (
        [put("spec.completions", 7), put("spec.parallelism", 8)],
        [IN_TANDEM],
    ),
    "to one, without parallelism": ([put("spec.completions", 1), drop("spec.parallelism")], []),
    "parallelism alone": ([put("spec.parallelism", 1)], []),
    "to nothing": (
        [drop("spec.completions")],
        twice(
            [
                FieldError(
                    "FieldValueRequired", "spec.completions", "when completion mode is Indexed"
                )
            ]
        ),
    ),
}


@pytest.mark.parametrize(("changes", "errors"), COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_an_indexed_job_may_scale_its_completions_together_with_parallelism(
    changes: Sequence[Change], errors: list[FieldError]
) -> None:
    assert job_update_errors(INDEXED, updated(INDEXED, *changes)) == errors
