"""Nothing passes uncharged only because this replica has not heard of what is counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    NAMESPACE,
    TIMEOUT_SECONDS,
    AdmissionHarness,
    Reply,
    admission_harness,
    eventually,
    opt_out,
)
from tests.builders import a_container, a_pod, a_quota
from tests.reactions import ReactiveClient, unreachable
from webhook.config import ConfigurationFile
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.kube.api import PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS, ListOptions
from webhook.policy import check_configuration
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.telemetry.metrics import Metrics

Object = dict[str, object]
Ask = Callable[[AdmissionHarness, Object, bool], Reply]
GPU = "requests.nvidia.com/gpu"
ONE_GPU = {"nvidia.com/gpu": "1"}
COUNTING = "usage is being counted for quota: "


def changed(
    pod: Object, *, dry_run: bool, harness: AdmissionHarness, resize: bool = False
) -> Reply:
    """Ask for twice the resources of a stored pod, or for a deadline."""
    spec = cast("Object", pod["spec"])
    if not resize:
        new = {**pod, "spec": {**spec, "activeDeadlineSeconds": 60}}
        return harness.change_pod(pod, new, dry_run=dry_run)
    container = cast("list[Object]", spec["containers"])[0]
    amounts = cast("dict[str, dict[str, str]]", container["resources"])
    more = {kind: dict.fromkeys(values, "2") for kind, values in amounts.items()}
    new = {**pod, "spec": {**spec, "containers": [{**container, "resources": more}]}}
    return harness.change_pod(pod, new, subresource="resize", dry_run=dry_run)


def bind(harness: AdmissionHarness, pod: Object, dry_run: bool, *, legacy: bool = False) -> Reply:
    uid = str(cast("Object", pod["metadata"])["uid"])
    return harness.bind("web-1", uid=uid, legacy=legacy, dry_run=dry_run)


def create(harness: AdmissionHarness, pod: Object, dry_run: bool) -> Reply:
    containers = cast("list[Object]", cast("Object", pod["spec"])["containers"])
    return harness.create_pod(*containers, name="web-2", uid="u2", node="n", dry_run=dry_run)


ASKS: Mapping[str, tuple[str, Ask]] = {
    "pods/binding": ("", bind),
    "bindings": ("", lambda harness, pod, dry: bind(harness, pod, dry, legacy=True)),
    "created with a node": ("", create),
    "resize": (
        "node-1",
        lambda harness, pod, dry: changed(pod, dry_run=dry, harness=harness, resize=True),
    ),
    "resize of one that waits": (
        "",
        lambda harness, pod, dry: changed(pod, dry_run=dry, harness=harness, resize=True),
    ),
    "deadline": ("node-1", lambda harness, pod, dry: changed(pod, dry_run=dry, harness=harness)),
    "deadline of one that waits": (
        "",
        lambda harness, pod, dry: changed(pod, dry_run=dry, harness=harness),
    ),
}
every_request = pytest.mark.parametrize(("node", "ask"), ASKS.values(), ids=ASKS.keys())
in_fact_and_dry = pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])


@contextmanager
def counting(
    harness: AdmissionHarness, configuration: ConfigurationFile | None = None
) -> Iterator[ReactiveClient]:
    """Run a second replica on the harness's cluster, which counts; hand out its line."""
    line = ReactiveClient(harness.cluster)
    options = EngineOptions(
        configuration=configuration,
        controller=ControllerOptions(timings=ControllerTimings(write_interval_seconds=0.005)),
    )
    engine = Engine(line, Metrics(), options)
    engine.start()
    try:
        assert engine.wait_until_ready(TIMEOUT_SECONDS) == []
        yield line
    finally:
        engine.stop()


@pytest.fixture
def deaf() -> Iterator[AdmissionHarness]:
    """A replica that does not count and hears of no quota from now on; another one counts."""
    with ExitStack() as stack:
        harness = stack.enter_context(admission_harness(with_controller=False))
        harness.client.pause(RESOURCE_QUOTAS)
        stack.enter_context(counting(harness))
        yield harness


def is_counted(harness: AdmissionHarness, *quotas: str) -> bool:
    accounts = cast("list[Object]", (harness.ledger() or {}).get("quotas", []))
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
@every_request
def test_a_quota_that_others_count_is_never_passed_by(
    deaf: AdmissionHarness, node: str, ask: Ask, dry_run: bool
) -> None:
    pod = deaf.pod(node=node, requests={"cpu": "1"})
    assert passes(ask(deaf, pod, dry_run))  # there is no quota
    deaf.create(a_quota("p1", hard={"requests.cpu": "2"}))
    eventually(lambda: is_counted(deaf, "p1"), "the quota is counted")
    assert is_undecided(ask(deaf, pod, dry_run), f"{COUNTING}p1")


@in_fact_and_dry
@every_request
def test_nor_is_one_that_is_not_counted_yet(
    open_harness: OpenHarness, node: str, ask: Ask, dry_run: bool
) -> None:
    harness = open_harness(with_controller=False)
    pod = harness.pod(node=node, requests={"cpu": "1"})
    harness.client.pause(RESOURCE_QUOTAS)
    harness.create(a_quota("p1"))
    assert is_undecided(ask(harness, pod, dry_run), "quota not seen here yet: p1")


def test_what_was_missed_is_charged_once_it_is_heard_of(deaf: AdmissionHarness) -> None:
    pod = deaf.pod(requests={"cpu": "1"})
    deaf.create(a_quota("p1", hard={"requests.cpu": "2"}))
    eventually(lambda: is_counted(deaf, "p1"), "the quota is counted")
    deaf.client.resume()
    deaf.catch_up()
    assert bind(deaf, pod, False).decision == "reserved"


@pytest.fixture
def skewed(tmp_path: Path) -> Iterator[AdmissionHarness]:
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
        admission_harness(
            a_quota("p1", hard={GPU: "1"}),
            a_quota("p2", uid="q2", hard={GPU: "1", "requests.cpu": "9"}),
            with_controller=False,
            # what containers have to specify is a question of its own
            directory=tmp_path,
            settings={"mustSpecify": "off"},
        ) as harness,
        counting(harness, newer),
    ):
        eventually(lambda: is_counted(harness, "p1", "p2"), "the quotas are counted")
        yield harness


@in_fact_and_dry
@every_request
def test_a_resource_that_only_others_defer_is_never_passed_by(
    skewed: AdmissionHarness, node: str, ask: Ask, dry_run: bool
) -> None:
    pod = skewed.pod(a_container(requests=ONE_GPU, limits=ONE_GPU), node=node)
    assert is_undecided(ask(skewed, pod, dry_run), f"{COUNTING}p1, p2")


@in_fact_and_dry
@every_request
def test_without_deferred_quotas_nothing_is_held_up(
    open_harness: OpenHarness, node: str, ask: Ask, dry_run: bool
) -> None:
    harness = open_harness(a_quota("counts", hard={"pods": "9"}))
    pod = harness.pod(node=node, requests={"cpu": "1"})
    harness.catch_up()
    assert passes(ask(harness, pod, dry_run))
    assert harness.ledger() is None


@every_request
def test_nor_after_the_last_deferred_quota_went(
    harness: AdmissionHarness, node: str, ask: Ask
) -> None:
    pod = harness.pod(node=node, requests={"cpu": "1"})
    harness.wait_until_settled()
    harness.api.delete(RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
    harness.wait_until_settled()
    assert is_counted(harness)
    assert passes(ask(harness, pod, False))


@every_request
def test_nor_by_the_ledger_of_a_namespace_that_opted_out(
    harness: AdmissionHarness, node: str, ask: Ask
) -> None:
    pod = harness.pod(node=node, requests={"cpu": "1"})
    harness.wait_until_settled()
    opt_out(harness.api, NAMESPACE)
    harness.catch_up()
    assert ask(harness, pod, False).decision == "not-opted-in"


@in_fact_and_dry
def test_a_pod_that_takes_nothing_limited_passes_once_the_quotas_are_counted(
    open_harness: OpenHarness, dry_run: bool
) -> None:
    harness = open_harness(a_quota("p1"), settings={"mustSpecify": "off"}, with_controller=False)
    pod = harness.pod(a_container(requests=ONE_GPU, limits=ONE_GPU))
    harness.catch_up()
    no_ledger = "the quota ledger of this namespace is not there yet"
    assert is_undecided(bind(harness, pod, dry_run), no_ledger)
    with counting(harness):
        eventually(lambda: is_counted(harness, "p1"), "the quota is counted")
        before = harness.version_at_rest()
        assert passes(bind(harness, pod, dry_run))
        assert harness.cluster.resource_version == before


@every_request
def test_a_ledger_that_cannot_be_asked_is_no_permission(
    open_harness: OpenHarness, node: str, ask: Ask
) -> None:
    harness = open_harness(with_controller=False)
    pod = harness.pod(node=node, requests={"cpu": "1"})
    harness.catch_up()
    harness.client.on("get", QUOTA_LEDGERS, unreachable)
    assert is_undecided(ask(harness, pod, False), "the quota ledger cannot be reached: ")


def test_nor_are_quotas_that_cannot_be_listed_or_read(open_harness: OpenHarness) -> None:
    harness = open_harness(with_controller=False)
    pod = harness.pod(requests={"cpu": "1"})
    harness.catch_up()
    harness.client.pause(RESOURCE_QUOTAS)
    harness.create(a_quota("odd", hard={"requests.cpu": "many"}))
    assert is_undecided(bind(harness, pod, False), "quota odd cannot be read: ")
    harness.client.on("list", RESOURCE_QUOTAS, unreachable)
    assert is_undecided(bind(harness, pod, False), "the API server does not answer: ")


def test_a_change_that_takes_no_more_of_anything_reads_nothing(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), with_controller=False)
    old = harness.pod(node="node-1", requests={"cpu": "2"})
    harness.catch_up()
    harness.client.calls.clear()
    new = {**old, "spec": a_pod(node="node-1", requests={"cpu": "1"})["spec"]}
    assert passes(harness.change_pod(old, new, subresource="resize"))
    assert harness.client.calls_of("get") == []


def test_a_pod_that_only_waits_asks_for_no_ledger(open_harness: OpenHarness) -> None:
    harness = open_harness(with_controller=False)
    harness.client.on("get", QUOTA_LEDGERS, unreachable)
    assert harness.create_pod(requests={"cpu": "1"}).decision == "not-assigned"
    assert harness.api.list(PODS, ListOptions(namespace=NAMESPACE)).items == ()
