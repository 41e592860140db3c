"""What only a quota's consent allows: asked of every new pod, and again where a pod is charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import WAITING, AdmissionHarness, Reply
from tests.builders import a_container, a_quota, an_expression
from tests.reactions import unreachable
from webhook.kube.api import PODS, RESOURCE_QUOTAS

Object = dict[str, object]
Ask = Callable[[AdmissionHarness, bool], Reply]

GOLD = an_expression("PriorityClass", "In", "gold")
LIMITED_SCOPE: Object = {"limitedResources": [{"resource": "pods", "matchScopes": [GOLD]}]}
REQUIRED: Object = {"requireQuotaForPriority": [GOLD]}
LIMITED_CPU: Object = {
    "limitedResources": [{"resource": "pods", "matchContains": ["requests.cpu"]}]
}
LIMITED_PODS: Object = {"limitedResources": [{"resource": "pods", "matchContains": ["count/"]}]}
EXCLUDED: Object = {"annotations": {"deferredquota.io/exclude": "true"}}

SCOPES_MISSING = "insufficient quota to match these scopes: [{PriorityClass In [gold]}]"
CPU_MISSING = "insufficient quota to consume: requests.cpu"
PODS_MISSING = "insufficient quota to consume: count/pods"

POD: dict[str, Any] = {"requests": {"cpu": "1"}, "priorityClassName": "gold"}


def stored(harness: AdmissionHarness, node: str) -> Object:
    """Store the pod, as if nobody had been asked when it was created."""
    made = harness.pod(node=node, **POD)
    harness.catch_up()
    return made


def bind(harness: AdmissionHarness, dry_run: bool, *, legacy: bool = False) -> Reply:
    uid = str(cast("Object", stored(harness, "")["metadata"])["uid"])
    return harness.bind("web-1", uid=uid, legacy=legacy, dry_run=dry_run)


def resize(
    harness: AdmissionHarness, dry_run: bool, *, cpu: str = "2", node: str = "node-1"
) -> Reply:
    old = stored(harness, node)
    grown = {**cast("Object", old["spec"]), "containers": [a_container(requests={"cpu": cpu})]}
    return harness.change_pod(old, {**old, "spec": grown}, subresource="resize", dry_run=dry_run)


def deadline(harness: AdmissionHarness, dry_run: bool) -> Reply:
    old = stored(harness, "node-1")
    new = {**old, "spec": {**cast("Object", old["spec"]), "activeDeadlineSeconds": 60}}
    return harness.change_pod(old, new, dry_run=dry_run)


CREATIONS: Mapping[str, Ask] = {
    "created to wait": lambda harness, dry: harness.create_pod(dry_run=dry, **POD),
    "created with a node": lambda harness, dry: harness.create_pod(node="n", dry_run=dry, **POD),
}
CHARGES: Mapping[str, Ask] = {
    "created with a node": CREATIONS["created with a node"],
    "pods/binding": bind,
    "bindings": lambda harness, dry: bind(harness, dry, legacy=True),
    "resize": resize,
}
HANDLERS = {**CREATIONS, **CHARGES}


def for_each(asks: Mapping[str, Ask]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("ask", asks.values(), ids=asks.keys())


dry_or_not = pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
class_rules = pytest.mark.parametrize(
    "settings",
    [LIMITED_SCOPE, REQUIRED, {**LIMITED_SCOPE, **REQUIRED}],
    ids=["limited", "required", "both"],
)


def is_refused(reply: Reply, message: str) -> bool:
    return (reply.code, reply.reason, reply.message) == (403, "Forbidden", message)


# -- a class that needs a quota ------------------------------------------------------------


@class_rules
@dry_or_not
@for_each(HANDLERS)
def test_a_class_without_a_quota_is_refused_at_every_handler_with_one_message(
    open_harness: OpenHarness, settings: Object, ask: Ask, dry_run: bool
) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "9"}), settings=settings)
    reply = ask(harness, dry_run)
    assert is_refused(reply, SCOPES_MISSING)
    assert reply.causes == [("InsufficientQuota", "PriorityClass", "{PriorityClass In [gold]}")]
    assert reply.details["name"] == "web-1"
    assert harness.reservations() == {}


@class_rules
@for_each(HANDLERS)
def test_a_class_without_a_quota_is_refused_where_there_is_no_quota_at_all(
    open_harness: OpenHarness, settings: Object, ask: Ask
) -> None:
    assert is_refused(ask(open_harness(settings=settings), False), SCOPES_MISSING)


@class_rules
@for_each(HANDLERS)
@pytest.mark.parametrize("metadata", [{}, EXCLUDED], ids=["deferred", "excluded"])
def test_a_class_with_a_quota_passes_every_handler(
    open_harness: OpenHarness, settings: Object, ask: Ask, metadata: Object
) -> None:
    covering = a_quota("gold", hard={"requests.cpu": "9"}, expressions=[GOLD], metadata=metadata)
    harness = open_harness(covering, settings=settings)
    harness.wait_until_settled()
    assert ask(harness, False).allowed


@class_rules
@for_each(HANDLERS)
def test_a_pod_of_another_class_or_of_none_passes(
    open_harness: OpenHarness, settings: Object, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = open_harness(settings=settings)
    monkeypatch.setitem(POD, "priorityClassName", "silver")
    assert ask(harness, False).allowed


# a quota that covers only as the platform counts; the rule and the setting that make it do so
PLATFORM: dict[str, tuple[Object, Object, bool]] = {
    "required, as the product counts": (REQUIRED, {}, False),
    "required, as the platform counts": (REQUIRED, {"coverage": "platform"}, True),
    "limited": (LIMITED_SCOPE, {}, True),
    "limited, as the platform counts": (LIMITED_SCOPE, {"coverage": "platform"}, True),
}
UNFIT = {
    "nothing of pods": a_quota("u", hard={"configmaps": "1"}, expressions=[GOLD]),
    "other pods": a_quota("u", hard={"pods": "1"}, scopes=["Terminating"], expressions=[GOLD]),
}


@for_each(HANDLERS)
@pytest.mark.parametrize("quota", UNFIT.values(), ids=UNFIT.keys())
@pytest.mark.parametrize(("rule", "setting", "covers"), PLATFORM.values(), ids=PLATFORM.keys())
def test_coverage_says_which_quota_is_enough(
    open_harness: OpenHarness, rule: Object, setting: Object, quota: Object, ask: Ask, covers: bool
) -> None:
    harness = open_harness(quota, settings={**rule, **setting})
    reply = ask(harness, False)
    assert reply.allowed if covers else is_refused(reply, SCOPES_MISSING)


# -- keys that need a quota ----------------------------------------------------------------


@dry_or_not
@for_each(CHARGES)
def test_a_deferred_key_needs_a_quota_where_the_pod_is_charged(
    open_harness: OpenHarness, ask: Ask, dry_run: bool
) -> None:
    reply = ask(open_harness(a_quota("p1", hard={"cpu": "9"}), settings=LIMITED_CPU), dry_run)
    assert is_refused(reply, CPU_MISSING)
    assert reply.causes == [("InsufficientQuota", "requests.cpu", "no matching quota limits it")]


def test_a_deferred_key_needs_no_quota_while_the_pod_waits(open_harness: OpenHarness) -> None:
    assert CREATIONS["created to wait"](open_harness(settings=LIMITED_CPU), False).allowed
    harness = open_harness(settings=LIMITED_CPU)
    assert resize(harness, False, node="").allowed


@for_each(CHARGES)
def test_a_quota_that_limits_the_key_of_other_pods_does_not_cover(
    open_harness: OpenHarness, ask: Ask
) -> None:
    harness = open_harness(a_quota("p1", scopes=["Terminating"]), settings=LIMITED_CPU)
    assert is_refused(ask(harness, False), CPU_MISSING)


@for_each(CHARGES)
@pytest.mark.parametrize("metadata", [{}, EXCLUDED], ids=["deferred", "excluded"])
def test_a_key_that_a_quota_limits_in_its_spec_passes(
    open_harness: OpenHarness, ask: Ask, metadata: Object
) -> None:
    quota = a_quota("p1", hard={"requests.cpu": "9"}, metadata=metadata)
    harness = open_harness(quota, settings=LIMITED_CPU)
    harness.wait_until_settled()
    assert ask(harness, False).allowed


@for_each({**CREATIONS, "pods/binding": bind})
def test_any_other_key_needs_a_quota_when_the_pod_is_created_and_is_asked_for_at_the_bind(
    open_harness: OpenHarness, ask: Ask
) -> None:
    assert is_refused(ask(open_harness(settings=LIMITED_PODS), False), PODS_MISSING)


def test_resizing_asks_for_no_other_key(open_harness: OpenHarness) -> None:
    assert resize(open_harness(settings=LIMITED_PODS), False).allowed


def test_a_deferred_extended_resource_is_asked_about_where_it_is_charged(
    open_harness: OpenHarness,
) -> None:
    settings = {
        "deferredResources": ["requests.nvidia.com/gpu"],
        "limitedResources": [{"resource": "pods", "matchContains": ["nvidia.com", "ephemeral"]}],
    }
    harness = open_harness(settings=settings)
    amounts = {"nvidia.com/gpu": "1", "ephemeral-storage": "1"}
    asked: Object = {"requests": amounts, "limits": {"nvidia.com/gpu": "1"}}
    waits = harness.create_pod(**asked)  # type: ignore[arg-type]
    ephemeral = "ephemeral-storage,requests.ephemeral-storage"
    assert is_refused(waits, f"insufficient quota to consume: {ephemeral}")
    placed = harness.create_pod(node="n", **asked)  # type: ignore[arg-type]
    assert is_refused(placed, f"insufficient quota to consume: {ephemeral},requests.nvidia.com/gpu")


# -- changes of running pods ---------------------------------------------------------------


@pytest.mark.parametrize("settings", [LIMITED_SCOPE, REQUIRED, LIMITED_CPU], ids=["s", "r", "k"])
@pytest.mark.parametrize("cpu", ["1", "500m"], ids=["same", "less"])
def test_a_resize_that_takes_no_more_is_not_asked(
    open_harness: OpenHarness, settings: Object, cpu: str
) -> None:
    assert resize(open_harness(settings=settings), False, cpu=cpu).allowed


def test_a_deadline_is_asked_where_it_moves_the_pod_into_a_quota(open_harness: OpenHarness) -> None:
    short = a_quota("short", hard={"requests.cpu": "9"}, scopes=["Terminating"])
    for quota, settings, message in (
        (short, REQUIRED, SCOPES_MISSING),
        (short, LIMITED_SCOPE, SCOPES_MISSING),
        (a_quota("short", hard={"cpu": "9"}, scopes=["Terminating"]), LIMITED_CPU, CPU_MISSING),
    ):
        assert is_refused(deadline(open_harness(quota, settings=settings), False), message)
    for settings in (REQUIRED, LIMITED_SCOPE):
        harness = open_harness(a_quota("all", hard={"requests.cpu": "9"}), settings=settings)
        harness.wait_until_settled()
        assert deadline(harness, False).allowed


# -- order, and what the cache has not seen ------------------------------------------------


def test_what_containers_must_specify_comes_first_as_in_the_api_server(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(a_quota("p1", hard={"limits.cpu": "9"}), settings=REQUIRED)
    reply = harness.create_pod(**POD)
    assert reply.message == "failed quota: p1: must specify limits.cpu for: main"


def test_keys_come_before_scopes_as_in_the_api_server(open_harness: OpenHarness) -> None:
    limited = [{"resource": "pods", "matchContains": ["count/"], "matchScopes": [GOLD]}]
    harness = open_harness(settings={"limitedResources": limited, **REQUIRED})
    assert is_refused(harness.create_pod(**POD), PODS_MISSING)


@class_rules
@for_each(CREATIONS)
def test_a_quota_that_the_cache_has_not_seen_covers(
    open_harness: OpenHarness, settings: Object, ask: Ask
) -> None:
    harness = open_harness(a_quota("other", hard={"pods": "1"}), settings=settings)
    harness.client.pause(RESOURCE_QUOTAS)
    harness.create(a_quota("gold", uid="g", hard={"pods": "9"}, expressions=[GOLD]))
    reply = ask(harness, False)
    assert reply.allowed


@for_each(HANDLERS)
def test_nothing_is_refused_for_want_of_a_quota_while_quotas_are_not_known(
    open_harness: OpenHarness, ask: Ask
) -> None:
    harness = open_harness(settings=REQUIRED)
    harness.catch_up()
    harness.client.on("list", RESOURCE_QUOTAS, unreachable)
    reply = ask(harness, False)
    assert (reply.code, reply.reason) == (429, "TooManyRequests")
    assert reply.message == "the API server does not answer: no route to the resourcequotas"


def test_a_covered_pod_asks_the_api_server_nothing(open_harness: OpenHarness) -> None:
    harness = open_harness(
        a_quota("gold", hard={"pods": "9"}, expressions=[GOLD]), settings=REQUIRED
    )
    harness.catch_up()
    harness.client.on("list", RESOURCE_QUOTAS, unreachable)
    assert harness.create_pod(**POD).allowed


@for_each(CHARGES)
def test_a_quota_that_cannot_be_evaluated_is_named(open_harness: OpenHarness, ask: Ask) -> None:
    bad = [an_expression("PriorityClass", "In", "bad value!")]
    harness = open_harness(
        a_quota("odd", hard={"pods": "1"}, expressions=bad), settings=LIMITED_CPU
    )
    reply = ask(harness, False)
    assert reply.code == 429
    assert str(reply.message).startswith("error matching scopes of quota odd, err: ")


# -- who is left alone ---------------------------------------------------------------------


@pytest.mark.parametrize("settings", [LIMITED_SCOPE, REQUIRED, LIMITED_CPU], ids=["s", "r", "k"])
@pytest.mark.parametrize("mirrors", ["charge", "enforce"])
def test_a_mirror_pod_needs_a_quota_only_where_it_is_enforced(
    open_harness: OpenHarness, settings: Object, mirrors: str
) -> None:
    harness = open_harness(settings={**settings, "mirrorPods": mirrors})
    reply = harness.create_pod(
        node="node-1",
        user="system:node:node-1",
        metadata={"annotations": {"kubernetes.io/config.mirror": "abc"}},
        **POD,
    )
    assert reply.allowed is (mirrors == "charge")


@for_each(HANDLERS)
def test_a_namespace_that_has_not_opted_in_is_not_asked(
    open_harness: OpenHarness, ask: Ask
) -> None:
    harness = open_harness(settings={**REQUIRED, **LIMITED_CPU}, mode="")
    assert ask(harness, False).decision == "not-opted-in"


def test_the_words_of_the_binding_handler_stay_those_of_storage(open_harness: OpenHarness) -> None:
    harness = open_harness(settings={**REQUIRED, **LIMITED_CPU})
    harness.pod(node="node-1", **POD)
    harness.client.pause(PODS, WAITING)
    assert harness.bind("web-1", uid="pod-uid-1").decision == "passthrough"
    assert harness.bind("none", uid="u").code == 404
