"""Compact pods are charged and selected like whole ones."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    a_container,
    a_container_status,
    a_pod,
    a_quota,
    a_sidecar,
    an_expression,
)
from tests.quota.oracle import pod_answers
from tests.quota.pod_strategies import damaged, json_values, places, pods
from webhook.jsonfields.encoding import InvalidJsonError, NumberText, decode_json, encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import UNCOUNTABLE, Quantity
from webhook.quota.charging.constraints import missing_resources
from webhook.quota.charging.deferral import deferred_part, is_excluded, uncountable_fields
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.charging.pod_usage import charged_to, usage_of
from webhook.quota.objects.compact import compact_pod, compact_quota
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.objects.qos import effective_qos_class, forged_qos_class, qos_class
from webhook.quota.queue.queued_pods import is_queued
from webhook.state.object_decoders import decode_pod
from webhook.state.well_known import SCHEDULING_GATE

Object = Mapping[str, object]

FULL = a_pod(
    name="web-1",
    uid="uid-1",
    node="node-1",
    requests={"cpu": "1", "memory": 5},
    limits={"cpu": NumberText("0.5")},
    metadata={
        "labels": {"app": "web"},
        "annotations": {"a": "b"},
        "resourceVersion": "7",
        "generation": 3,
        "deletionTimestamp": "2026-06-01T12:30:00Z",
        "deletionGracePeriodSeconds": 30,
    },
    priorityClassName="gold",
    activeDeadlineSeconds=60,
    overhead={"memory": "8Mi"},
    status={
        "phase": "Running",
        "qosClass": "Burstable",
        "containerStatuses": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}],
        "conditions": [{"type": "Ready", "status": "True"}],
    },
)
WRONG: tuple[object, ...] = (None, True, 5, "", "text", [], [None], {}, {"a": 5})
_LEFT_OUT = ("labels", "generateName", "creationTimestamp", "generation")


def in_words(pod: Pod) -> Pod:
    """The whole pod without what is not kept."""
    mirror = {"kubernetes.io/config.mirror": ""} if pod.is_mirror else {}
    created = None if pod.is_assigned else pod.created
    prefix = "" if pod.is_assigned else pod.generate_name
    return replace(pod, generate_name=prefix, created=created, labels={}, annotations=mirror)


def read(reader: Callable[[Object], Pod], raw: Object) -> Pod | str:
    """The pod, or what is wrong with it."""
    try:
        return reader(raw)
    except ValueError as err:
        return f"{type(err).__name__}: {err}"


def check(raw: Object) -> None:
    whole, kept = read(Pod.from_stored, raw), read(compact_pod, raw)
    if isinstance(whole, str) or isinstance(kept, str):
        assert kept == whole
        return
    assert kept == in_words(whole)
    assert usage_of(kept, now=None) == usage_of(whole, now=None)
    assert {name: str(one) for name, one in usage_of(kept, now=None).items()} == {
        name: str(one) for name, one in usage_of(whole, now=None).items()
    }
    assert charged_to(kept) == charged_to(whole)
    granted = charged_to(replace(kept, resize_infeasible=False))
    assert granted == charged_to(replace(whole, resize_infeasible=False))
    assert effective_qos_class(kept) == effective_qos_class(whole)


def test_every_recorded_pod_is_charged_as_a_whole() -> None:
    for answer in pod_answers():
        check(answer.pod)
        check(answer.raw)


def test_what_is_wrong_anywhere_is_reported_as_for_the_whole_pod() -> None:
    for path in places(FULL):
        if path and not {*_LEFT_OUT}.intersection(path):
            for value in WRONG:
                check(damaged(FULL, path, value))  # type: ignore[arg-type]


def test_an_amount_that_is_too_large_to_read_is_kept_as_such() -> None:
    allocated = {"name": "app", "allocatedResources": {"": "1e400"}}
    check({**FULL, "status": {"phase": "Running", "containerStatuses": [allocated]}})


@given(pod=pods(), value=json_values(), data=st.data())
def test_any_pod_is_charged_as_a_whole(pod: Object, value: object, data: st.DataObject) -> None:
    check(pod)
    inner = [path for path in places(pod) if not {*_LEFT_OUT}.intersection(path)]
    broken = damaged(pod, data.draw(st.sampled_from(inner)), value)
    try:
        parsed = decode_json(encode_json(broken))
    except InvalidJsonError:
        return  # it has a key that JSON cannot have
    if isinstance(parsed, dict):
        check(parsed)


@pytest.mark.parametrize("observed", [None, 1, 2, 3])
def test_a_resize_is_read_beside_the_generation(observed: int | None) -> None:
    condition = {"type": "PodResizePending", "reason": "Infeasible", "observedGeneration": observed}
    for generation in (None, 2):
        check(
            a_pod(
                node="n",
                requests={"cpu": "1"},
                metadata={"generation": generation},
                status={"phase": "Running", "conditions": [{"type": "Ready"}, condition]},
            )
        )


def test_pods_of_one_template_share_what_they_are_charged_by() -> None:
    one, two = (
        compact_pod(a_pod(name=name, uid=name, node=f"node-{name}", requests={"cpu": "7"}))
        for name in ("a", "b")
    )
    assert (one.name, one.uid, one.node_name) == ("a", "a", "node-a")
    assert (two.name, two.uid, two.node_name) == ("b", "b", "node-b")
    assert one.containers is two.containers
    assert usage_of(one, now=None) is usage_of(two, now=None)


def as_on_a_node(number: int) -> Pod:
    """A pod of one template as a cluster has it: with a token, addresses, ids and times."""
    token = f"kube-api-access-{number:05x}"
    started = f"2026-06-01T12:00:{number:02}Z"
    resources = {"requests": {"cpu": "7"}}
    container = a_container(requests={"cpu": "7"}, volumeMounts=[{"name": token}])
    return compact_pod(
        a_pod(
            name=f"web-{number}",
            uid=f"uid-{number}",
            node=f"node-{number}",
            containers=[container],
            volumes=[{"name": token, "projected": {"sources": []}}],
            status={
                "phase": "Running",
                "podIP": f"10.0.0.{number}",
                "startTime": started,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": started}],
                "containerStatuses": [
                    {
                        "name": container["name"],
                        "containerID": f"containerd://{number:064x}",
                        "state": {"running": {"startedAt": started}},
                        "allocatedResources": resources["requests"],
                        "resources": resources,
                    }
                ],
            },
        )
    )


def test_what_each_pod_on_a_node_has_of_its_own_does_not_keep_it_from_sharing() -> None:
    one, two = map(as_on_a_node, (1, 2))
    assert (one.name, two.name) == ("web-1", "web-2")
    assert one.containers is two.containers
    assert one.statuses is two.statuses
    assert usage_of(one, now=None) is usage_of(two, now=None)


WAITING = a_pod(
    requests={"cpu": "1"},
    priority=7,
    schedulingGates=[{"name": "deferredquota.io/quota"}],
    metadata={"creationTimestamp": "2026-06-01T12:00:00Z", "resourceVersion": "7"},
    status={
        "phase": "Pending",
        "nominatedNodeName": "",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    },
)


def test_of_a_pod_that_waits_its_age_and_its_chances_are_kept() -> None:
    kept = compact_pod(WAITING)
    assert kept.created == Pod.from_object(WAITING).created is not None
    assert (kept.priority, kept.scheduling_gates) == (7, ("deferredquota.io/quota",))
    assert kept.is_unplaced


def test_what_is_wrong_in_a_pod_that_waits_is_reported_as_for_the_whole_pod() -> None:
    for path in places(WAITING):
        if path and not {"labels", "generateName", "generation"}.intersection(path):
            for value in WRONG:
                check(damaged(WAITING, path, value))  # type: ignore[arg-type]


MANY = 6_000
ROOM = 4096
"""Bytes that one kept pod may take, however large the pod is."""
TOKEN = {"deferredquota.io/ungated": "0123456789abcdef"}
LARGE: Mapping[str, Object] = {
    "labels": {"metadata": {"labels": {f"l{n}": "x" for n in range(MANY)}}},
    "annotations": {"metadata": {"annotations": {f"a{n}": "x" * 40 for n in range(MANY)}}},
    "one annotation": {"metadata": {"annotations": {"a": "x" * 250_000}}},
    "a token that is none": {
        "metadata": {"annotations": {"deferredquota.io/ungated": "x" * 250_000}}
    },
    "owners": {"metadata": {"ownerReferences": [{"name": f"o{n}"} for n in range(MANY)]}},
    "managed fields": {"metadata": {"managedFields": [{"manager": f"m{n}"} for n in range(MANY)]}},
    "tolerations": {"tolerations": [{"key": f"k{n}"} for n in range(MANY)]},
    "gates": {
        "schedulingGates": [
            *({"name": f"example.com/g{n}"} for n in range(MANY)),
            {"name": "deferredquota.io/quota"},
        ]
    },
    "containers": {
        "containers": [
            {"name": f"c{n}", "resources": {"requests": {"cpu": f"{n + 1}m"}}} for n in range(MANY)
        ]
    },
    "containers that a node reports of": {
        "containers": [a_container(f"c{n}", requests={"cpu": f"{n + 1}m"}) for n in range(1500)],
        "status": {
            "phase": "Running",
            "containerStatuses": [
                a_container_status(f"c{n}", requests={"cpu": "2m"}, allocated={"cpu": f"{n}m"})
                for n in range(1500)
            ],
        },
    },
    "containers that state nothing": {"containers": [{"name": f"c{n}"} for n in range(MANY)]},
    "init containers": {
        "initContainers": [
            {
                "name": f"c{n}",
                "restartPolicy": "Always",
                "resources": {"limits": {"memory": str(n + 1)}},
            }
            for n in range(MANY)
        ]
    },
    "conditions": {"status": {"conditions": [{"type": f"t{n}"} for n in range(MANY)]}},
}
SCALARS = {f"example.com/r{n}": "1" for n in range(1500)}
PAGES = {f"hugepages-{n + 1}Ki": "0" for n in range(1500)}
COMPUTE = {"cpu": "1", "memory": "1Gi"}
NAMING: Mapping[str, Object] = {
    "one container": {"containers": [a_container(requests={**COMPUTE, **SCALARS}, limits=SCALARS)]},
    "many containers": {
        "containers": [
            a_container(f"c{n}", requests={**COMPUTE, name: "1"}) for n, name in enumerate(SCALARS)
        ]
    },
    "a sidecar": {"initContainers": [a_sidecar(requests=SCALARS)]},
    "huge pages": {"containers": [a_container(requests={**COMPUTE, **PAGES})]},
    "huge pages of the pod": {"resources": {"requests": PAGES, "limits": PAGES}},
    "running": {
        "containers": [a_container(requests={**COMPUTE, **SCALARS})],
        "status": {
            "phase": "Running",
            "containerStatuses": [
                a_container_status(requests=SCALARS, limits=SCALARS, allocated={"cpu": "3"})
            ],
        },
    },
}
"""Pods that name more resources than any node has."""
GPU: Final = "requests.example.com/gpu"


@pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "assigned"])
@pytest.mark.parametrize(
    "extra", [*LARGE.values(), *NAMING.values()], ids=[*LARGE.keys(), *NAMING.keys()]
)
def test_what_is_kept_of_a_pod_does_not_grow_with_the_pod(extra: Object, node: str) -> None:
    raws = [
        decode_pod(encode_json(a_pod(name=f"p{n}", uid=f"u{n}", node=node, **extra)))  # type: ignore[arg-type]
        for n in range(4)
    ]
    tracemalloc.start()
    try:
        for raw in raws:
            compact_pod(raw)  # which fills caches of texts that do not grow
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        kept = [compact_pod(raw) for raw in raws]
        del raws
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / len(kept) < ROOM


@pytest.mark.parametrize(
    "extra",
    [{"status": {"qosClass": "x" * 9_000}}, {"nodeName": "x" * 9_000}],
    ids=["a class that is none", "a node that is none"],
)
def test_a_text_of_any_length_is_not_kept(extra: Object) -> None:
    kept = compact_pod(a_pod(requests={"cpu": "1"}, **extra))  # type: ignore[arg-type]
    assert len(repr(kept)) < ROOM
    assert kept.is_assigned is ("nodeName" in extra)
    assert bool(forged_qos_class(kept)) is ("status" in extra)


@pytest.mark.parametrize("extra", LARGE.values(), ids=LARGE.keys())
def test_a_large_pod_is_judged_as_a_whole(extra: Object) -> None:
    whole = Pod.from_object(a_pod(requests={"cpu": "1"}, **extra))  # type: ignore[arg-type]
    kept = compact_pod(a_pod(requests={"cpu": "1"}, **extra))  # type: ignore[arg-type]
    assert usage_of(kept, now=None) == usage_of(whole, now=None)
    assert charged_to(kept) == charged_to(whole)
    assert charged_to(replace(kept, node_name="node-2")) == charged_to(whole)
    assert qos_class(kept) == qos_class(whole)
    keys = ("requests.cpu", "limits.cpu", "requests.memory", "limits.memory")
    assert set(missing_resources(kept, keys)) == set(missing_resources(whole, keys))
    assert kept.is_gated is whole.is_gated
    assert (SCHEDULING_GATE in kept.scheduling_gates) is (SCHEDULING_GATE in whole.scheduling_gates)
    assert is_queued(kept, SCHEDULING_GATE) is is_queued(whole, SCHEDULING_GATE)


@pytest.mark.parametrize("extra", NAMING.values(), ids=NAMING.keys())
@pytest.mark.parametrize("keys", [DEFERRED_KEYS, DEFERRED_KEYS | {GPU}], ids=["compute", "gpu"])
def test_a_pod_that_names_very_many_resources_is_charged_as_a_whole(
    extra: Object, keys: frozenset[str]
) -> None:
    raw = a_pod(requests={"cpu": "1"}, **extra)  # type: ignore[arg-type]
    whole, kept = Pod.from_object(raw), compact_pod(raw)
    charged = deferred_part(charged_to(whole), keys)
    assert deferred_part(charged_to(kept), keys) == charged
    assert (charged.get(GPU) == UNCOUNTABLE) is (GPU in keys)
    assert bool(uncountable_fields(kept, keys)) is (GPU in keys)
    assert qos_class(kept) == qos_class(whole)
    keys_of_compute = ("requests.cpu", "limits.cpu", "requests.memory", "limits.memory")
    assert set(missing_resources(kept, keys_of_compute)) == set(
        missing_resources(whole, keys_of_compute)
    )


def test_an_init_container_that_is_larger_in_force_is_kept_of_a_large_pod() -> None:
    init = [a_container(f"i{n}", requests={"cpu": "1"}) for n in range(50)]
    reported = [a_container_status(f"i{n}", requests={"cpu": f"{n}"}) for n in range(50)]
    raw = a_pod(init=init, status={"phase": "Pending", "initContainerStatuses": reported})
    whole, kept = Pod.from_object(raw), compact_pod(raw)
    assert charged_to(kept) == charged_to(whole)
    assert str(charged_to(kept)["requests.cpu"]) == "49"
    assert str(usage_of(kept, now=None)["requests.cpu"]) == "1"


def test_up_to_a_number_of_resources_each_is_counted() -> None:
    named = dict(list(SCALARS.items())[:31])
    raw = a_pod(*(a_container(f"c{n}", requests={**named, "cpu": "1"}) for n in range(30)))
    whole, kept = Pod.from_object(raw), compact_pod(raw)
    assert not kept.has_many_names
    assert usage_of(kept, now=None) == usage_of(whole, now=None)
    assert len(kept.containers) == 1


@given(pod=pods(), copies=st.integers(20, 40))
def test_a_summary_of_containers_is_judged_as_all_of_them(pod: Object, copies: int) -> None:
    spec = pod["spec"]
    assert isinstance(spec, Mapping)
    containers = [
        {**one, "name": f"{one.get('name')}-{n}"}
        for n in range(copies)
        for one in spec.get("containers") or ()
    ]
    large = {**pod, "spec": {**spec, "containers": containers}}
    whole, kept = Pod.from_object(large), compact_pod(large)
    assert usage_of(kept, now=None) == usage_of(whole, now=None)
    assert qos_class(kept) == qos_class(whole)
    keys = ("requests.cpu", "limits.cpu", "requests.memory", "limits.memory")
    assert set(missing_resources(kept, keys)) == set(missing_resources(whole, keys))


def test_that_a_pod_was_let_through_is_kept_until_it_has_a_node() -> None:
    assert compact_pod(a_pod(metadata={"annotations": {"a": "b", **TOKEN}})).annotations == TOKEN
    assert not compact_pod(a_pod(node="n", metadata={"annotations": TOKEN})).annotations


def a_wide_quota(*names: str) -> Object:
    hard = {"requests.cpu": "2", "pods": "3", **dict.fromkeys(names, "1")}
    return a_quota(hard=hard, used=dict.fromkeys(hard, "0"))


def test_of_very_many_limits_of_a_quota_those_of_pods_are_kept_and_its_revision() -> None:
    raw = a_wide_quota(*[f"a/{number}" for number in range(1000)])
    kept, whole = compact_quota(raw), ResourceQuota.from_object(raw)
    assert kept.hard.keys() == kept.status_used.keys() == {"requests.cpu", "pods"}
    assert kept.spec_hash == whole.spec_hash
    few = a_wide_quota("count/secrets")
    assert compact_quota(few).hard == ResourceQuota.from_object(few).hard


@pytest.mark.parametrize(
    ("quota", "field"),
    [
        (a_wide_quota(*[f"requests.a/{number}" for number in range(300)]), "spec.hard"),
        (a_quota(scopes=["Terminating"] * 257), "spec.scopeSelector"),
        (
            a_quota(expressions=[an_expression("PriorityClass", "In", *("x" * 1001))]),
            "spec.scopeSelector",
        ),
        (
            a_quota(expressions=[an_expression("PriorityClass", "In", "x" * 70_000)]),
            "spec.scopeSelector",
        ),
    ],
    ids=["limits of pods", "scopes", "classes", "characters"],
)
def test_a_quota_of_which_too_much_had_to_be_kept_cannot_be_read(quota: Object, field: str) -> None:
    with pytest.raises(InvalidFieldError, match="more than") as raised:
        compact_quota(quota)
    assert raised.value.field == field


def test_of_the_annotations_of_a_quota_only_the_one_that_excludes_it_is_kept() -> None:
    quota = {"metadata": {"annotations": {"a": "x" * 1000, "deferredquota.io/exclude": "true"}}}
    assert compact_quota(quota).annotations == {"deferredquota.io/exclude": "true"}
    assert is_excluded(compact_quota(quota))


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
UNPLACED: Mapping[str, tuple[Object, bool]] = {
    "no node takes it": ({"conditions": [UNSCHEDULABLE]}, True),
    "its bind was refused": (
        {"conditions": [{"type": "Ready"}, {**UNSCHEDULABLE, "reason": "SchedulerError"}]},
        True,
    ),
    "it is behind gates": ({"conditions": [{**UNSCHEDULABLE, "reason": "SchedulingGated"}]}, False),
    "it has been scheduled": ({"conditions": [{**UNSCHEDULABLE, "status": "True"}]}, False),
    "nobody has tried yet": ({}, False),
    "it is to get a node": ({"conditions": [UNSCHEDULABLE], "nominatedNodeName": "n"}, False),
}


@pytest.mark.parametrize(("status", "expected"), UNPLACED.values(), ids=UNPLACED.keys())
def test_a_pod_is_unplaced_when_the_scheduler_has_found_no_node_for_it(
    status: Object, expected: bool
) -> None:
    waits = a_pod(status=status)
    assert compact_pod(waits).is_unplaced is Pod.from_object(waits).is_unplaced is expected
    assert not compact_pod(a_pod(node="n", status=status)).is_unplaced


_BINDING = (
    'running Bind plugin "DefaultBinder": admission webhook "bind.deferredquota.io" denied the'
    " request: "
)
_ONE = {"requests.cpu": Quantity.parse("1")}
_USED = QuotaExceeded("cdq/epool.p.0123abcd", _ONE, _ONE, _ONE)
_DENIED = f"{_BINDING}{_USED.message}"
_EXTENDED = "0/3 nodes are available: 3 quota exceeded: cdq/epool.p, requested: cpu=1, used: cpu=2"
BIND_REFUSED: Mapping[str, tuple[Object, bool]] = {
    "the bind was refused": ({"reason": "SchedulerError", "message": _DENIED}, True),
    "a tenant says so": (
        {"reason": "SchedulerError", "message": f"CEL runtime error: no such key: {_DENIED}"},
        False,
    ),
    "a volume failed": (
        {"reason": "SchedulerError", "message": "binding volumes: timed out"},
        False,
    ),
    "an extender refused": ({"message": _EXTENDED}, True),
    "an extender refused, and a node is too small": (
        {"message": _EXTENDED.replace(": 3", ": 1 Insufficient cpu, 1 had taint {a: b}, 1")},
        True,
    ),
    "a tenant's claim is named like that": (
        {"message": f'0/3 nodes are available: persistentvolumeclaim "x{_EXTENDED}" not found.'},
        False,
    ),
    "an extender refused for another quota": (
        {"message": _EXTENDED.replace("cdq/epool.p", "p1")},
        False,
    ),
    "the node does not fit": (
        {"reason": "SchedulerError", "message": f"{_BINDING}the kubelet would not admit the pod"},
        False,
    ),
    "no node takes it": ({"message": "0/3 nodes are available: 3 Insufficient cpu."}, False),
    "it is behind gates": ({"reason": "SchedulingGated", "message": _EXTENDED}, False),
    "it has been scheduled": ({"reason": "SchedulerError", "status": "True"}, False),
}


@pytest.mark.parametrize(("condition", "expected"), BIND_REFUSED.values(), ids=BIND_REFUSED)
def test_a_bind_is_refused_when_the_scheduler_had_found_a_node(
    condition: Object, expected: bool
) -> None:
    status: Object = {"conditions": [{**UNSCHEDULABLE, **condition}], "nominatedNodeName": "n"}
    waits = a_pod(status=status)
    assert compact_pod(waits).is_bind_refused is Pod.from_object(waits).is_bind_refused is expected
    assert not compact_pod(a_pod(node="n", status=status)).is_bind_refused
    assert not compact_pod(a_pod()).is_bind_refused


def test_a_mirror_pod_stays_one() -> None:
    metadata = {"annotations": {"kubernetes.io/config.mirror": "hash", "other": "x"}}
    assert compact_pod(a_pod(metadata=metadata)).is_mirror
    assert not compact_pod(a_pod()).is_mirror
