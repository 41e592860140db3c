"""Every scope and operator at every handler that charges: who is counted, and who is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import AdmissionHarness, Reply, eventually
from tests.builders import a_container, a_quota, an_expression

Object = dict[str, object]
Pod = dict[str, Any]
Ask = Callable[[AdmissionHarness, Pod], Reply]

GPU = "requests.nvidia.com/gpu"
"""An extended resource goes with any scope, and a pod of any class of service can have it."""
SETTINGS = {"deferredResources": [GPU]}
EXCEEDED = f"exceeded quota: p1, requested: {GPU}="

CPU: Pod = {"requests": {"cpu": "1"}}
NO_CPU: Pod = {"requests": {}}
GOLD: Pod = {"priorityClassName": "gold"}
SILVER: Pod = {"priorityClassName": "silver"}
NO_CLASS: Pod = {}
SHORT: Pod = {"activeDeadlineSeconds": 60}
LONG: Pod = {}


def affinity(**term: object) -> Pod:
    terms = [{"topologyKey": "kubernetes.io/hostname", **term}]
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"podAntiAffinity": rule}}


def expressions(*made: Object) -> Object:
    return {"expressions": list(made)}


def of_class(operator: str, *values: str) -> Object:
    return expressions(an_expression("PriorityClass", operator, *values))


# the quota's scopes; pods it counts; pods it does not
CASES: Mapping[str, tuple[Object, list[Pod], list[Pod]]] = {
    "no scope": ({}, [GOLD, NO_CLASS, SHORT], []),
    "In one class": (of_class("In", "gold"), [GOLD], [SILVER, NO_CLASS]),
    "In several": (of_class("In", "bronze", "gold", "silver"), [GOLD, SILVER], [NO_CLASS]),
    "In a class that nobody has": (of_class("In", "none-such"), [], [GOLD, NO_CLASS]),
    "In the empty name": (of_class("In", ""), [], [GOLD, NO_CLASS]),
    "NotIn": (of_class("NotIn", "gold"), [SILVER, NO_CLASS], [GOLD]),
    "NotIn several": (of_class("NotIn", "gold", "silver"), [NO_CLASS], [GOLD, SILVER]),
    "Exists": (of_class("Exists"), [GOLD, SILVER], [NO_CLASS]),
    "Exists, as a scope": ({"scopes": ["PriorityClass"]}, [GOLD], [NO_CLASS]),
    "DoesNotExist": (of_class("DoesNotExist"), [NO_CLASS], [GOLD]),
    "two expressions on classes": (
        expressions(
            an_expression("PriorityClass", "In", "gold", "silver"),
            an_expression("PriorityClass", "NotIn", "silver"),
        ),
        [GOLD],
        [SILVER, NO_CLASS],
    ),
    "a class and a deadline": (
        {"scopes": ["Terminating"], **of_class("In", "gold")},
        [{**GOLD, **SHORT}],
        [GOLD, SHORT, {**SILVER, **SHORT}],
    ),
    "Terminating": ({"scopes": ["Terminating"]}, [SHORT, {"activeDeadlineSeconds": 0}], [LONG]),
    "NotTerminating": ({"scopes": ["NotTerminating"]}, [LONG], [SHORT]),
    "Terminating and its opposite": (
        {"scopes": ["Terminating"], **expressions(an_expression("NotTerminating"))},
        [],
        [LONG, SHORT],
    ),
    "BestEffort": ({"scopes": ["BestEffort"]}, [NO_CPU], [CPU]),
    "NotBestEffort": (expressions(an_expression("NotBestEffort")), [CPU], [NO_CPU]),
    "CrossNamespacePodAffinity": (
        {"scopes": ["CrossNamespacePodAffinity"]},
        [affinity(namespaces=["team-b"]), affinity(namespaceSelector={})],
        [NO_CLASS, affinity(), affinity(namespaces=[])],
    ),
    "VolumeAttributesClass": ({"scopes": ["VolumeAttributesClass"]}, [], [GOLD, NO_CLASS]),
}


def fields_of(pod: Pod, gpus: str) -> Pod:
    amounts = {"nvidia.com/gpu": gpus}
    return {
        **pod,
        "name": "web-1",
        "uid": "u1",
        "requests": {**(pod.get("requests", CPU["requests"]) or {}), **amounts},
        "limits": amounts,
    }


def opened(open_harness: OpenHarness, quota: Object) -> AdmissionHarness:
    """Open a harness with a quota, and one for all pods, whose ledger is there."""
    harness = open_harness(quota, a_quota("z-all", uid="z", hard={GPU: "9"}), settings=SETTINGS)
    eventually(lambda: harness.ledger() is not None, "there is a ledger")
    return harness


def bind(harness: AdmissionHarness, pod: Pod, *, legacy: bool = False) -> Reply:
    harness.pod(**fields_of(pod, "3"))
    harness.catch_up()
    return harness.bind("web-1", uid="u1", legacy=legacy)


def stored(harness: AdmissionHarness, pod: Pod, gpus: str) -> Object:
    """Store a pod on a node, and wait until it is counted."""
    made = harness.pod(node="node-1", **fields_of(pod, gpus))
    harness.catch_up()
    version = int(str(cast("Object", made["metadata"])["resourceVersion"]))

    def is_counted() -> bool:
        ledger = harness.ledger() or {}
        return int(str(ledger.get("podsResourceVersion", "0"))) >= version

    eventually(is_counted, "the pod is counted")
    return made


def resize(harness: AdmissionHarness, pod: Pod) -> Reply:
    old = stored(harness, pod, "1")
    asked = fields_of(pod, "3")
    more = a_container(requests=asked["requests"], limits=asked["limits"])
    new = {**old, "spec": {**cast("Object", old["spec"]), "containers": [more]}}
    return harness.change_pod(old, new, subresource="resize")


HANDLERS: Mapping[str, Ask] = {
    "created with a node": lambda harness, pod: harness.create_pod(node="n", **fields_of(pod, "3")),
    "pods/binding": bind,
    "bindings": lambda harness, pod: bind(harness, pod, legacy=True),
    "resize": resize,
}
every_handler = pytest.mark.parametrize("ask", HANDLERS.values(), ids=HANDLERS.keys())


@every_handler
@pytest.mark.parametrize(("scopes", "inside", "outside"), CASES.values(), ids=CASES.keys())
def test_a_quota_counts_the_pods_in_its_scopes_and_no_others(
    open_harness: OpenHarness, scopes: Any, inside: list[Pod], outside: list[Pod], ask: Ask
) -> None:
    for pod, is_counted in [(one, True) for one in inside] + [(one, False) for one in outside]:
        quota = a_quota("p1", hard={GPU: "2"}, **scopes)
        reply = ask(opened(open_harness, quota), pod)
        if is_counted:
            assert (reply.code, reply.reason) == (403, "Forbidden"), pod
            assert str(reply.message).startswith(EXCEEDED)
        else:
            assert (reply.allowed, reply.audit.get("quota")) == (True, "z-all"), (
                pod,
                reply.message,
            )


@every_handler
@pytest.mark.parametrize(("scopes", "inside", "outside"), CASES.values(), ids=CASES.keys())
def test_a_pod_that_fits_is_charged_where_it_is_counted(
    open_harness: OpenHarness, scopes: Any, inside: list[Pod], outside: list[Pod], ask: Ask
) -> None:
    for pod, quotas in [(one, "p1,z-all") for one in inside] + [(one, "z-all") for one in outside]:
        quota = a_quota("p1", hard={GPU: "3"}, **scopes)
        reply = ask(opened(open_harness, quota), pod)
        assert (reply.allowed, reply.audit["quota"]) == (True, quotas), (pod, reply.message)


# -- deadlines that come and go ------------------------------------------------------------

# the quota's scopes; the pod; is it counted with, and without deadline
FLIPS: Mapping[str, tuple[Object, Pod, bool, bool]] = {
    "no scope": ({}, GOLD, True, True),
    "Terminating": ({"scopes": ["Terminating"]}, GOLD, True, False),
    "Terminating, as an expression": (
        expressions(an_expression("Terminating")),
        NO_CLASS,
        True,
        False,
    ),
    "NotTerminating": ({"scopes": ["NotTerminating"]}, GOLD, False, True),
    "both": (
        {"scopes": ["Terminating"], **expressions(an_expression("NotTerminating"))},
        GOLD,
        False,
        False,
    ),
    "In": ({"scopes": ["Terminating"], **of_class("In", "gold")}, GOLD, True, False),
    "In another": ({"scopes": ["Terminating"], **of_class("In", "silver")}, GOLD, False, False),
    "NotIn": ({"scopes": ["NotTerminating"], **of_class("NotIn", "silver")}, GOLD, False, True),
    "NotIn, no class": (
        {"scopes": ["Terminating"], **of_class("NotIn", "silver")},
        NO_CLASS,
        True,
        False,
    ),
    "Exists": ({"scopes": ["Terminating"], **of_class("Exists")}, GOLD, True, False),
    "Exists, no class": (
        {"scopes": ["Terminating"], **of_class("Exists")},
        NO_CLASS,
        False,
        False,
    ),
    "DoesNotExist": (
        {"scopes": ["Terminating"], **of_class("DoesNotExist")},
        NO_CLASS,
        True,
        False,
    ),
    "DoesNotExist of one with a class": (
        {"scopes": ["Terminating"], **of_class("DoesNotExist")},
        GOLD,
        False,
        False,
    ),
    "BestEffort": ({"scopes": ["Terminating", "BestEffort"]}, NO_CPU, True, False),
    "NotBestEffort": ({"scopes": ["NotTerminating", "NotBestEffort"]}, CPU, False, True),
    "CrossNamespacePodAffinity": (
        {"scopes": ["Terminating", "CrossNamespacePodAffinity"]},
        affinity(namespaceSelector={}),
        True,
        False,
    ),
    "VolumeAttributesClass": (
        {"scopes": ["Terminating", "VolumeAttributesClass"]},
        GOLD,
        False,
        False,
    ),
}


@pytest.mark.parametrize("ends", [True, False], ids=["comes", "goes"])
@pytest.mark.parametrize(("scopes", "pod", "short", "long"), FLIPS.values(), ids=FLIPS.keys())
def test_a_deadline_is_charged_in_the_quotas_that_the_pod_moves_into(
    open_harness: OpenHarness, scopes: Any, pod: Pod, short: bool, long: bool, ends: bool
) -> None:
    before, after = (long, short) if ends else (short, long)
    harness = opened(open_harness, a_quota("p1", hard={GPU: "1"}, **scopes))
    old = stored(harness, {**pod, **(LONG if ends else SHORT)}, "2")
    assert harness.used() == {GPU: "2" if before else "0"}
    new = {**old, "spec": {**cast("Object", old["spec"]), "activeDeadlineSeconds": 60}}
    if not ends:
        cast("Object", new["spec"]).pop("activeDeadlineSeconds")
    reply = harness.change_pod(old, new)
    if after and not before:
        assert (reply.code, reply.reason) == (403, "Forbidden")
        assert reply.message == f"{EXCEEDED}2, used: {GPU}=0, limited: {GPU}=1"
    else:
        assert reply.allowed
        assert harness.reserved() == {}
