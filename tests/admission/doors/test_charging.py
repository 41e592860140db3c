"""Nothing passes uncharged only because this replica has not heard of what is counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pytest

from tests.admission.doors.conftest import OpenDesk
from tests.admission.doors.desk import (
    NAMESPACE,
    PATIENCE_SECONDS,
    Desk,
    Line,
    Reply,
    a_desk,
    eventually,
    opt_out,
)
from tests.builders import a_container, a_pod, a_quota
from webhook.cluster.api import PODS, RESOURCE_QUOTAS
from webhook.config import ConfigurationFile
from webhook.controllers.tracked import TrackerTiming
from webhook.runtime import ControlOptions, Engine, EngineOptions, check_configuration
from webhook.telemetry.metrics import Metrics

Object = dict[str, object]
Ask = Callable[[Desk, Object, bool], Reply]
GPU = "requests.nvidia.com/gpu"
ONE_GPU = {"nvidia.com/gpu": "1"}
COUNTING = "usage is being counted for quota: "


def changed(pod: Object, *, dry_run: bool, desk: Desk, resize: bool = False) -> Reply:
    """Ask for twice the resources of a stored pod, or for a deadline."""
    spec = cast("Object", pod["spec"])
    if not resize:
        new = {**pod, "spec": {**spec, "activeDeadlineSeconds": 60}}
        return desk.change_pod(pod, new, dry_run=dry_run)
    container = cast("list[Object]", spec["containers"])[0]
    amounts = cast("dict[str, dict[str, str]]", container["resources"])
    more = {kind: dict.fromkeys(values, "2") for kind, values in amounts.items()}
    new = {**pod, "spec": {**spec, "containers": [{**container, "resources": more}]}}
    return desk.change_pod(pod, new, subresource="resize", dry_run=dry_run)


def bind(desk: Desk, pod: Object, dry_run: bool, *, legacy: bool = False) -> Reply:
    uid = str(cast("Object", pod["metadata"])["uid"])
    return desk.bind("web-1", uid=uid, legacy=legacy, dry_run=dry_run)


def create(desk: Desk, pod: Object, dry_run: bool) -> Reply:
    containers = cast("list[Object]", cast("Object", pod["spec"])["containers"])
    return desk.create_pod(*containers, name="web-2", uid="u2", node="n", dry_run=dry_run)


ASKS: Mapping[str, tuple[str, Ask]] = {
    "pods/binding": ("", bind),
    "bindings": ("", lambda desk, pod, dry: bind(desk, pod, dry, legacy=True)),
    "created with a node": ("", create),
    "resize": ("node-1", lambda desk, pod, dry: changed(pod, dry_run=dry, desk=desk, resize=True)),
    "resize of one that waits": (
        "",
        lambda desk, pod, dry: changed(pod, dry_run=dry, desk=desk, resize=True),
    ),
    "deadline": ("node-1", lambda desk, pod, dry: changed(pod, dry_run=dry, desk=desk)),
    "deadline of one that waits": ("", lambda desk, pod, dry: changed(pod, dry_run=dry, desk=desk)),
}
every_door = pytest.mark.parametrize(("node", "ask"), ASKS.values(), ids=ASKS.keys())
in_fact_and_dry = pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])


@contextmanager
def counting(desk: Desk, configuration: ConfigurationFile | None = None) -> Iterator[Line]:
    """Run a second replica on the desk's cluster, which counts; hand out its line."""
    line = Line(desk.cluster)
    options = EngineOptions(
        configuration=configuration,
        control=ControlOptions(timing=TrackerTiming(settle_seconds=0.005)),
    )
    engine = Engine(line, Metrics(), options)
    engine.start()
    try:
        assert engine.wait_until_ready(PATIENCE_SECONDS) == []
        yield line
    finally:
        engine.stop()


@pytest.fixture
def deaf() -> Iterator[Desk]:
    """A replica that does not count and hears of no quota from now on; another one counts."""
    with ExitStack() as stack:
        desk = stack.enter_context(a_desk(with_tracker=False))
        desk.line.hold(RESOURCE_QUOTAS)
        stack.enter_context(counting(desk))
        yield desk


def is_counted(desk: Desk, *quotas: str) -> bool:
    accounts = cast("list[Object]", (desk.ledger() or {}).get("quotas", []))
    return [account["name"] for account in accounts] == [*quotas]


def is_undecided(reply: Reply, message: str) -> bool:
    return (
        (reply.code, reply.reason) == (429, "TooManyRequests")
        and str(reply.message).startswith(message)
        and reply.decision == "undecided"
    )


def passes(reply: Reply) -> bool:
    return reply.allowed and reply.decision == "nothing-charged"


@in_fact_and_dry
@every_door
def test_a_quota_that_others_count_is_never_passed_by(
    deaf: Desk, node: str, ask: Ask, dry_run: bool
) -> None:
    pod = deaf.pod(node=node, requests={"cpu": "1"})
    assert passes(ask(deaf, pod, dry_run))  # there is no quota
    deaf.create(a_quota("p1", hard={"requests.cpu": "2"}))
    eventually(lambda: is_counted(deaf, "p1"), "the quota is counted")
    assert is_undecided(ask(deaf, pod, dry_run), f"{COUNTING}p1")


@in_fact_and_dry
@every_door
def test_nor_is_one_that_nobody_counts_yet(
    open_desk: OpenDesk, node: str, ask: Ask, dry_run: bool
) -> None:
    desk = open_desk(with_tracker=False)
    pod = desk.pod(node=node, requests={"cpu": "1"})
    desk.line.hold(RESOURCE_QUOTAS)
    desk.create(a_quota("p1"))
    assert is_undecided(ask(desk, pod, dry_run), "quota not seen here yet: p1")


def test_what_was_missed_is_charged_once_it_is_heard_of(deaf: Desk) -> None:
    pod = deaf.pod(requests={"cpu": "1"})
    deaf.create(a_quota("p1", hard={"requests.cpu": "2"}))
    eventually(lambda: is_counted(deaf, "p1"), "the quota is counted")
    deaf.line.resume()
    deaf.catch_up()
    assert bind(deaf, pod, False).decision == "reserved"


@pytest.fixture
def skewed(tmp_path: Path) -> Iterator[Desk]:
    """A replica that does not defer GPUs yet; another one counts them."""
    path = tmp_path / "newer.yaml"
    settings = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "Configuration",
        "deferredResources": [GPU],
    }
    path.write_text(json.dumps(settings), encoding="utf-8")
    newer = ConfigurationFile(path, check=check_configuration)
    with (
        a_desk(
            a_quota("p1", hard={GPU: "1"}),
            a_quota("p2", uid="q2", hard={GPU: "1", "requests.cpu": "9"}),
            with_tracker=False,
            # what containers have to specify is a question of its own
            directory=tmp_path,
            settings={"mustSpecify": "off"},
        ) as desk,
        counting(desk, newer),
    ):
        eventually(lambda: is_counted(desk, "p1", "p2"), "the quotas are counted")
        yield desk


@in_fact_and_dry
@every_door
def test_a_resource_that_only_others_defer_is_never_passed_by(
    skewed: Desk, node: str, ask: Ask, dry_run: bool
) -> None:
    pod = skewed.pod(a_container(requests=ONE_GPU, limits=ONE_GPU), node=node)
    assert is_undecided(ask(skewed, pod, dry_run), f"{COUNTING}p1, p2")


@in_fact_and_dry
@every_door
def test_without_deferred_quotas_nothing_is_held_up(
    open_desk: OpenDesk, node: str, ask: Ask, dry_run: bool
) -> None:
    desk = open_desk(a_quota("counts", hard={"pods": "9"}))
    pod = desk.pod(node=node, requests={"cpu": "1"})
    desk.catch_up()
    assert passes(ask(desk, pod, dry_run))
    assert desk.ledger() is None


@every_door
def test_nor_after_the_last_deferred_quota_went(desk: Desk, node: str, ask: Ask) -> None:
    pod = desk.pod(node=node, requests={"cpu": "1"})
    desk.settle()
    desk.api.delete(RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
    desk.settle()
    assert is_counted(desk)
    assert passes(ask(desk, pod, False))


@every_door
def test_nor_by_the_ledger_of_a_namespace_that_opted_out(desk: Desk, node: str, ask: Ask) -> None:
    pod = desk.pod(node=node, requests={"cpu": "1"})
    desk.settle()
    opt_out(desk.api, NAMESPACE)
    desk.catch_up()
    assert ask(desk, pod, False).decision == "not-opted-in"


@in_fact_and_dry
def test_a_pod_that_takes_nothing_limited_passes_once_the_quotas_are_counted(
    open_desk: OpenDesk, dry_run: bool
) -> None:
    desk = open_desk(a_quota("p1"), settings={"mustSpecify": "off"}, with_tracker=False)
    pod = desk.pod(a_container(requests=ONE_GPU, limits=ONE_GPU))
    desk.catch_up()
    no_ledger = "the quota ledger of this namespace is not there yet"
    assert is_undecided(bind(desk, pod, dry_run), no_ledger)
    with counting(desk):
        eventually(lambda: is_counted(desk, "p1"), "the quota is counted")
        before = desk.cluster.resource_version
        assert passes(bind(desk, pod, dry_run))
        assert desk.cluster.resource_version == before


@every_door
def test_a_ledger_that_cannot_be_asked_is_no_permission(
    open_desk: OpenDesk, node: str, ask: Ask
) -> None:
    desk = open_desk(with_tracker=False)
    pod = desk.pod(node=node, requests={"cpu": "1"})
    desk.catch_up()
    desk.line.broken.add(("get", "quotaledgers"))
    assert is_undecided(ask(desk, pod, False), "the quota ledger cannot be reached: ")


def test_nor_are_quotas_that_cannot_be_listed_or_read(open_desk: OpenDesk) -> None:
    desk = open_desk(with_tracker=False)
    pod = desk.pod(requests={"cpu": "1"})
    desk.catch_up()
    desk.line.hold(RESOURCE_QUOTAS)
    desk.create(a_quota("odd", hard={"requests.cpu": "many"}))
    assert is_undecided(bind(desk, pod, False), "quota odd cannot be read: ")
    desk.line.broken.add(("list", "resourcequotas"))
    assert is_undecided(bind(desk, pod, False), "the API server does not answer: ")


def test_a_change_that_takes_no_more_of_anything_asks_nobody(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1"), with_tracker=False)
    old = desk.pod(node="node-1", requests={"cpu": "2"})
    desk.catch_up()
    desk.line.calls.clear()
    new = {**old, "spec": a_pod(node="node-1", requests={"cpu": "1"})["spec"]}
    assert passes(desk.change_pod(old, new, subresource="resize"))
    assert [call for call in desk.line.calls if call[0] == "get"] == []


def test_a_pod_that_only_waits_asks_for_no_ledger(open_desk: OpenDesk) -> None:
    desk = open_desk(with_tracker=False)
    desk.line.broken.add(("get", "quotaledgers"))
    assert desk.create_pod(requests={"cpu": "1"}).decision == "not-assigned"
    assert desk.api.list(PODS, namespace=NAMESPACE).items == ()
