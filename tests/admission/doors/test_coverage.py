"""What only a quota's consent allows: asked of every new pod, and again where a pod is charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from tests.admission.doors.conftest import OpenDesk
from tests.admission.doors.desk import WAITING, Desk, Reply
from tests.builders import a_container, a_quota, an_expression
from webhook.cluster.api import PODS, RESOURCE_QUOTAS

Object = dict[str, object]
Ask = Callable[[Desk, bool], Reply]

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


def stored(desk: Desk, node: str) -> Object:
    """Store the pod, as if nobody had been asked when it was created."""
    made = desk.pod(node=node, **POD)
    desk.catch_up()
    return made


def bind(desk: Desk, dry_run: bool, *, legacy: bool = False) -> Reply:
    uid = str(cast("Object", stored(desk, "")["metadata"])["uid"])
    return desk.bind("web-1", uid=uid, legacy=legacy, dry_run=dry_run)


def resize(desk: Desk, dry_run: bool, *, cpu: str = "2", node: str = "node-1") -> Reply:
    old = stored(desk, node)
    grown = {**cast("Object", old["spec"]), "containers": [a_container(requests={"cpu": cpu})]}
    return desk.change_pod(old, {**old, "spec": grown}, subresource="resize", dry_run=dry_run)


def deadline(desk: Desk, dry_run: bool) -> Reply:
    old = stored(desk, "node-1")
    new = {**old, "spec": {**cast("Object", old["spec"]), "activeDeadlineSeconds": 60}}
    return desk.change_pod(old, new, dry_run=dry_run)


CREATIONS: Mapping[str, Ask] = {
    "created to wait": lambda desk, dry: desk.create_pod(dry_run=dry, **POD),
    "created with a node": lambda desk, dry: desk.create_pod(node="n", dry_run=dry, **POD),
}
CHARGES: Mapping[str, Ask] = {
    "created with a node": CREATIONS["created with a node"],
    "pods/binding": bind,
    "bindings": lambda desk, dry: bind(desk, dry, legacy=True),
    "resize": resize,
}
DOORS = {**CREATIONS, **CHARGES}


def doors(asks: Mapping[str, Ask]) -> pytest.MarkDecorator:
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
@doors(DOORS)
def test_a_class_without_a_quota_is_refused_at_every_door_with_one_message(
    open_desk: OpenDesk, settings: Object, ask: Ask, dry_run: bool
) -> None:
    desk = open_desk(a_quota("p1", hard={"requests.cpu": "9"}), settings=settings)
    reply = ask(desk, dry_run)
    assert is_refused(reply, SCOPES_MISSING)
    assert reply.causes == [("InsufficientQuota", "PriorityClass", "{PriorityClass In [gold]}")]
    assert reply.details["name"] == "web-1"
    assert desk.reservations() == {}


@class_rules
@doors(DOORS)
def test_a_class_without_a_quota_is_refused_where_there_is_no_quota_at_all(
    open_desk: OpenDesk, settings: Object, ask: Ask
) -> None:
    assert is_refused(ask(open_desk(settings=settings), False), SCOPES_MISSING)


@class_rules
@doors(DOORS)
@pytest.mark.parametrize("metadata", [{}, EXCLUDED], ids=["deferred", "excluded"])
def test_a_class_with_a_quota_passes_every_door(
    open_desk: OpenDesk, settings: Object, ask: Ask, metadata: Object
) -> None:
    covering = a_quota("gold", hard={"requests.cpu": "9"}, expressions=[GOLD], metadata=metadata)
    desk = open_desk(covering, settings=settings)
    desk.settle()
    assert ask(desk, False).allowed


@class_rules
@doors(DOORS)
def test_a_pod_of_another_class_or_of_none_passes(
    open_desk: OpenDesk, settings: Object, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = open_desk(settings=settings)
    monkeypatch.setitem(POD, "priorityClassName", "silver")
    assert ask(desk, False).allowed


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


@doors(DOORS)
@pytest.mark.parametrize("quota", UNFIT.values(), ids=UNFIT.keys())
@pytest.mark.parametrize(("rule", "setting", "covers"), PLATFORM.values(), ids=PLATFORM.keys())
def test_coverage_says_which_quota_is_enough(
    open_desk: OpenDesk, rule: Object, setting: Object, quota: Object, ask: Ask, covers: bool
) -> None:
    desk = open_desk(quota, settings={**rule, **setting})
    reply = ask(desk, False)
    assert reply.allowed if covers else is_refused(reply, SCOPES_MISSING)


# -- keys that need a quota ----------------------------------------------------------------


@dry_or_not
@doors(CHARGES)
def test_a_deferred_key_needs_a_quota_where_the_pod_is_charged(
    open_desk: OpenDesk, ask: Ask, dry_run: bool
) -> None:
    reply = ask(open_desk(a_quota("p1", hard={"cpu": "9"}), settings=LIMITED_CPU), dry_run)
    assert is_refused(reply, CPU_MISSING)
    assert reply.causes == [("InsufficientQuota", "requests.cpu", "no matching quota limits it")]


def test_a_deferred_key_needs_no_quota_while_the_pod_waits(open_desk: OpenDesk) -> None:
    assert CREATIONS["created to wait"](open_desk(settings=LIMITED_CPU), False).allowed
    desk = open_desk(settings=LIMITED_CPU)
    assert resize(desk, False, node="").allowed


@doors(CHARGES)
def test_a_quota_that_limits_the_key_of_other_pods_does_not_cover(
    open_desk: OpenDesk, ask: Ask
) -> None:
    desk = open_desk(a_quota("p1", scopes=["Terminating"]), settings=LIMITED_CPU)
    assert is_refused(ask(desk, False), CPU_MISSING)


@doors(CHARGES)
@pytest.mark.parametrize("metadata", [{}, EXCLUDED], ids=["deferred", "excluded"])
def test_a_key_that_a_quota_limits_in_its_spec_passes(
    open_desk: OpenDesk, ask: Ask, metadata: Object
) -> None:
    quota = a_quota("p1", hard={"requests.cpu": "9"}, metadata=metadata)
    desk = open_desk(quota, settings=LIMITED_CPU)
    desk.settle()
    assert ask(desk, False).allowed


@doors({**CREATIONS, "pods/binding": bind})
def test_any_other_key_needs_a_quota_when_the_pod_is_created_and_is_asked_for_at_the_bind(
    open_desk: OpenDesk, ask: Ask
) -> None:
    assert is_refused(ask(open_desk(settings=LIMITED_PODS), False), PODS_MISSING)


def test_resizing_asks_for_no_other_key(open_desk: OpenDesk) -> None:
    assert resize(open_desk(settings=LIMITED_PODS), False).allowed


def test_a_deferred_extended_resource_is_asked_about_where_it_is_charged(
    open_desk: OpenDesk,
) -> None:
    settings = {
        "deferredResources": ["requests.nvidia.com/gpu"],
        "limitedResources": [{"resource": "pods", "matchContains": ["nvidia.com", "ephemeral"]}],
    }
    desk = open_desk(settings=settings)
    amounts = {"nvidia.com/gpu": "1", "ephemeral-storage": "1"}
    asked: Object = {"requests": amounts, "limits": {"nvidia.com/gpu": "1"}}
    waits = desk.create_pod(**asked)  # type: ignore[arg-type]
    ephemeral = "ephemeral-storage,requests.ephemeral-storage"
    assert is_refused(waits, f"insufficient quota to consume: {ephemeral}")
    placed = desk.create_pod(node="n", **asked)  # type: ignore[arg-type]
    assert is_refused(placed, f"insufficient quota to consume: {ephemeral},requests.nvidia.com/gpu")


# -- changes of running pods ---------------------------------------------------------------


@pytest.mark.parametrize("settings", [LIMITED_SCOPE, REQUIRED, LIMITED_CPU], ids=["s", "r", "k"])
@pytest.mark.parametrize("cpu", ["1", "500m"], ids=["same", "less"])
def test_a_resize_that_takes_no_more_is_not_asked(
    open_desk: OpenDesk, settings: Object, cpu: str
) -> None:
    assert resize(open_desk(settings=settings), False, cpu=cpu).allowed


def test_a_deadline_is_asked_where_it_moves_the_pod_into_a_quota(open_desk: OpenDesk) -> None:
    short = a_quota("short", hard={"requests.cpu": "9"}, scopes=["Terminating"])
    for quota, settings, message in (
        (short, REQUIRED, SCOPES_MISSING),
        (short, LIMITED_SCOPE, SCOPES_MISSING),
        (a_quota("short", hard={"cpu": "9"}, scopes=["Terminating"]), LIMITED_CPU, CPU_MISSING),
    ):
        assert is_refused(deadline(open_desk(quota, settings=settings), False), message)
    for settings in (REQUIRED, LIMITED_SCOPE):
        desk = open_desk(a_quota("all", hard={"requests.cpu": "9"}), settings=settings)
        desk.settle()
        assert deadline(desk, False).allowed


# -- order, and what the cache has not seen ------------------------------------------------


def test_what_containers_must_specify_comes_first_as_in_the_api_server(
    open_desk: OpenDesk,
) -> None:
    desk = open_desk(a_quota("p1", hard={"limits.cpu": "9"}), settings=REQUIRED)
    reply = desk.create_pod(**POD)
    assert reply.message == "failed quota: p1: must specify limits.cpu for: main"


def test_keys_come_before_scopes_as_in_the_api_server(open_desk: OpenDesk) -> None:
    limited = [{"resource": "pods", "matchContains": ["count/"], "matchScopes": [GOLD]}]
    desk = open_desk(settings={"limitedResources": limited, **REQUIRED})
    assert is_refused(desk.create_pod(**POD), PODS_MISSING)


@class_rules
@doors(CREATIONS)
def test_a_quota_that_the_cache_has_not_seen_covers(
    open_desk: OpenDesk, settings: Object, ask: Ask
) -> None:
    desk = open_desk(a_quota("other", hard={"pods": "1"}), settings=settings)
    desk.line.hold(RESOURCE_QUOTAS)
    desk.create(a_quota("gold", uid="g", hard={"pods": "9"}, expressions=[GOLD]))
    reply = ask(desk, False)
    assert reply.allowed


@doors(DOORS)
def test_nothing_is_refused_for_want_of_a_quota_while_nobody_can_say_which_there_are(
    open_desk: OpenDesk, ask: Ask
) -> None:
    desk = open_desk(settings=REQUIRED)
    desk.catch_up()
    desk.line.broken.add(("list", "resourcequotas"))
    reply = ask(desk, False)
    assert (reply.code, reply.reason) == (429, "TooManyRequests")
    assert reply.message == "the API server does not answer: no route to the resourcequotas"


def test_a_covered_pod_asks_the_api_server_nothing(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("gold", hard={"pods": "9"}, expressions=[GOLD]), settings=REQUIRED)
    desk.catch_up()
    desk.line.broken.add(("list", "resourcequotas"))
    assert desk.create_pod(**POD).allowed


@doors(CHARGES)
def test_a_quota_that_cannot_be_evaluated_is_named(open_desk: OpenDesk, ask: Ask) -> None:
    bad = [an_expression("PriorityClass", "In", "bad value!")]
    desk = open_desk(a_quota("odd", hard={"pods": "1"}, expressions=bad), settings=LIMITED_CPU)
    reply = ask(desk, False)
    assert reply.code == 429
    assert str(reply.message).startswith("error matching scopes of quota odd, err: ")


# -- who is left alone ---------------------------------------------------------------------


@pytest.mark.parametrize("settings", [LIMITED_SCOPE, REQUIRED, LIMITED_CPU], ids=["s", "r", "k"])
@pytest.mark.parametrize("mirrors", ["charge", "enforce"])
def test_a_mirror_pod_needs_a_quota_only_where_it_is_enforced(
    open_desk: OpenDesk, settings: Object, mirrors: str
) -> None:
    desk = open_desk(settings={**settings, "mirrorPods": mirrors})
    reply = desk.create_pod(
        node="node-1",
        user="system:node:node-1",
        metadata={"annotations": {"kubernetes.io/config.mirror": "abc"}},
        **POD,
    )
    assert reply.allowed is (mirrors == "charge")


@doors(DOORS)
def test_a_namespace_that_has_not_opted_in_is_not_asked(open_desk: OpenDesk, ask: Ask) -> None:
    desk = open_desk(settings={**REQUIRED, **LIMITED_CPU}, mode="")
    assert ask(desk, False).decision == "not-opted-in"


def test_the_words_of_the_binding_door_stay_those_of_storage(open_desk: OpenDesk) -> None:
    desk = open_desk(settings={**REQUIRED, **LIMITED_CPU})
    desk.pod(node="node-1", **POD)
    desk.line.hold(PODS, WAITING)
    assert desk.bind("web-1", uid="pod-uid-1").decision == "passthrough"
    assert desk.bind("none", uid="u").code == 404
