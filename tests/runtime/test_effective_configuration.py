"""Changes of the configuration file that need the registrations, and files that cannot be used."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import a_namespace, a_review, eventually
from tests.builders import a_pod, a_quota
from tests.reactions import ReactiveClient, fail, unavailable
from webhook.admission.deadline import Deadline
from webhook.admission.review import Phase, decode_review
from webhook.config import Configuration, ConfigurationFile
from webhook.controllers.mask.webhook_registration import UNREAD_GUARD, Guard
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import (
    EVENTS,
    NAMESPACES,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ForbiddenError,
    ListOptions,
)
from webhook.policy import check_configuration
from webhook.quota.ledger.ledger import NO_GUARD
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.runtime.effective_configuration import EffectiveConfiguration
from webhook.state.well_known import BIND_ENTRY, DEFAULT_NAMESPACE
from webhook.telemetry.metrics import Metrics

HEAD = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"}
TEAM = "team-a"
GPU = "requests.nvidia.com/gpu"


class ObservedFile(ConfigurationFile):
    """A file that tells of each new configuration before its poll returns."""

    def __init__(self, path: Path, observe: Callable[[], None]) -> None:
        super().__init__(path, check=check_configuration)
        self._observe = observe

    def poll(self) -> bool:
        is_new = super().poll()
        if is_new:
            self._observe()
        return is_new


class EngineHarness:
    """An engine with webhook and controller, its configuration file, and the registrations."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write({"deferredResources": [GPU]})
        cluster = FakeCluster()
        cluster.load(
            [
                (NAMESPACES, a_namespace()),
                (RESOURCE_QUOTAS, a_quota("q", hard={"requests.cpu": "2", GPU: "2"})),
            ]
        )
        self.api = FakeClient(cluster)
        self.api.create(VALIDATING_WEBHOOKS, self.registration(deferred=[GPU]))
        self.metrics = Metrics()
        self.met: list[tuple[str, str]] = []
        self.file = ObservedFile(path, lambda: self.met.append(self.in_force()))
        quick = ControllerOptions(timings=ControllerTimings(event_repeat_seconds=0.1))
        options = EngineOptions(self.file, controller=quick, is_registered=True)
        self.engine = Engine(self.api, self.metrics, options)

    def write(self, fields: dict[str, Any] | str) -> None:
        text = fields if isinstance(fields, str) else json.dumps({**HEAD, **fields})
        # at once, as a mounted ConfigMap changes: a reader must not meet a half of it
        part = self.path.with_suffix(".part")
        part.write_text(text)
        part.replace(self.path)

    @staticmethod
    def registration(*exempt: str, deferred: Sequence[str] = ()) -> Any:
        objects = render(exempt_namespaces=exempt, deferred_resources=deferred).registrations
        return next(one for one in objects if one["kind"] == "ValidatingWebhookConfiguration")

    def leave_out(self, *exempt: str) -> None:
        """Register as an installation with these exempt namespaces does."""
        found = self.api.get(VALIDATING_WEBHOOKS, "deferred-quota")
        wanted = self.registration(*exempt)
        self.api.update(VALIDATING_WEBHOOKS, {**found, "webhooks": wanted["webhooks"]})

    def defer(self, *resources: str) -> None:
        """Register as an installation that defers these extended resources does."""
        found: Any = self.api.get(VALIDATING_WEBHOOKS, "deferred-quota")
        notes = self.registration(deferred=resources)["metadata"]["annotations"]
        metadata = {**found["metadata"], "annotations": notes}
        self.api.update(VALIDATING_WEBHOOKS, {**found, "metadata": metadata})

    def decision(self, engine: Engine | None = None, cpu: str = "9") -> str:
        """Return how a pod that names its node is decided on."""
        pod = a_pod(node="n", requests={"cpu": cpu})
        raw = encode_json(a_review("CREATE", "pods", pod, namespace=TEAM))
        request = decode_review(raw, Phase.VALIDATING)
        return (engine or self.engine).decide(request, Deadline(float("inf"))).decision

    def hides(self, resource: str) -> bool:
        """Return whether the webhook takes a resource out of a status that is written."""
        shown = {**a_quota("q"), "status": {"hard": {resource: "2"}, "used": {resource: "0"}}}
        review = a_review("UPDATE", "resourcequotas", shown, old=shown, subresource="status")
        request = decode_review(encode_json(review), Phase.MUTATING)
        return self.engine.decide(request, Deadline(float("inf"))).decision == "masked"

    def in_force(self) -> tuple[str, str]:
        """Return a setting that is decided by as it is, and one that the policy has."""
        return self.engine.configuration.gating, self.engine.policy.must_specify.value

    def enforced(self) -> set[str]:
        """Return what the API server enforces of the quota."""
        found = cast("Any", self.api.get(RESOURCE_QUOTAS, "q", namespace=TEAM))
        return set(found.get("status", {}).get("hard", {}))

    def shows(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"deferred_quota_{name}", labels)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[EngineHarness]:
    made = EngineHarness(tmp_path / "config.yaml")
    made.engine.start()
    assert made.engine.wait_until_ready(10) == []
    yield made
    made.engine.stop()


def after_reload(process: EngineHarness) -> Callable[[], bool]:
    before = process.file.loaded_at
    return lambda: process.file.loaded_at > before


def test_no_request_is_decided_by_one_file_and_the_policy_of_another(
    process: EngineHarness,
) -> None:
    before = process.in_force()
    process.write({"gating": "never", "mustSpecify": "off"})
    after = ("never", "off")
    eventually(lambda: process.in_force() == after, "it is in force")
    assert before != after
    assert process.met == [before]  # while the file was read, and the policy not compiled yet


NARROWED: dict[str, dict[str, object]] = {
    "it fails open": {"failurePolicy": "Ignore"},
    "it has a condition": {"matchConditions": [{"name": "some", "expression": "true"}]},
    "it is not asked about all binds": {"rules": []},
}


@pytest.mark.parametrize("fields", NARROWED.values(), ids=NARROWED)
def test_no_namespace_is_exempt_for_a_guard_that_lets_some_binds_pass(
    fields: dict[str, object],
) -> None:
    """It may be asked about the others, and what is hidden stays so while a mask stands."""
    api = FakeClient(FakeCluster())
    raw = EngineHarness.registration()
    for entry in raw["webhooks"]:
        entry.update(fields if entry["name"] == BIND_ENTRY else {})
    api.create(VALIDATING_WEBHOOKS, raw)
    effective = EffectiveConfiguration(api, lambda: 1.0)
    assert effective.refresh()
    wanted = replace(Configuration(), exempt_namespaces=frozenset({TEAM}))
    assert effective.apply(wanted).exempt_namespaces == frozenset()
    assert effective.pending_fields


def test_a_namespace_is_exempt_where_there_is_no_guard() -> None:
    effective = EffectiveConfiguration(FakeClient(FakeCluster()), lambda: 1.0)
    assert effective.refresh()
    wanted = replace(Configuration(), exempt_namespaces=frozenset({TEAM}))
    assert effective.apply(wanted).exempt_namespaces == {TEAM}


def test_a_namespace_is_exempt_only_when_the_guard_leaves_it_out(process: EngineHarness) -> None:
    assert process.decision() != "exempt"
    eventually(lambda: process.enforced() == set(), "the quota is deferred")
    is_reloaded = after_reload(process)
    process.write({"exemptNamespaces": ["kube-system", TEAM]})
    eventually(is_reloaded, "the file is read")
    told = f"held back, run scripts/install: exemptNamespaces: {TEAM}"
    eventually(lambda: any(told in one for one in process.engine.warnings()), "it is told")
    assert process.decision() != "exempt"
    eventually(lambda: "requests.cpu" in process.enforced(), "the API server enforces it as well")
    eventually(lambda: process.shows("configuration_held_back") == 2, "the metric shows it")
    process.leave_out("kube-system", TEAM)
    eventually(lambda: process.decision() == "exempt", "the exemption is in force")
    assert not any(TEAM in one for one in process.engine.warnings())
    process.leave_out("kube-system")
    eventually(lambda: process.decision() != "exempt", "it is guarded again")


def test_a_resource_that_is_dropped_is_charged_until_the_mask_is_narrower(
    process: EngineHarness,
) -> None:
    assert process.hides(GPU)
    is_reloaded = after_reload(process)
    process.write({"gating": "never"})
    eventually(is_reloaded, "the file is read")
    held_back = f"{GPU}: is charged until the mask"
    eventually(lambda: any(held_back in one for one in process.engine.warnings()), "it is told")
    assert GPU in process.engine.policy.deferred_keys
    assert not process.hides(GPU)
    assert process.hides("requests.cpu")
    eventually(lambda: GPU in process.enforced(), "the API server enforces it as well")
    process.defer()
    eventually(
        lambda: GPU not in process.engine.policy.deferred_keys,
        "it is the API server's",
    )
    assert process.engine.warnings() == []


def test_a_process_that_starts_meanwhile_charges_a_dropped_resource_like_the_others(
    process: EngineHarness,
) -> None:
    process.write({"gating": "never"})
    file = ConfigurationFile(process.path, check=check_configuration)
    options = EngineOptions(file, controller=None, follow_ledgers=True, is_registered=True)
    anew = Engine(process.api, Metrics(), options)
    anew.start()
    try:
        eventually(
            lambda: GPU in anew.policy.deferred_keys,
            "it counts as those that were there before",
        )
    finally:
        anew.stop()


def test_without_an_annotation_a_dropped_resource_is_charged_until_a_restart(
    process: EngineHarness,
) -> None:
    found: Any = process.api.get(VALIDATING_WEBHOOKS, "deferred-quota")
    process.api.update(
        VALIDATING_WEBHOOKS, {**found, "metadata": {**found["metadata"], "annotations": {}}}
    )
    process.write({"gating": "never"})
    held_back = f"{GPU}: is charged until a restart"
    eventually(lambda: any(held_back in one for one in process.engine.warnings()), "it is told")
    assert GPU in process.engine.policy.deferred_keys


def test_a_rejected_file_is_reported_until_it_is_mended(process: EngineHarness) -> None:
    process.write({"queue": {"order": "Random"}})
    eventually(lambda: process.file.rejection is not None, "the file is rejected")
    (told,) = process.engine.warnings()
    assert told.startswith("configuration rejected since 2")
    assert str(process.path) in told
    assert "queue.order" in told
    eventually(lambda: process.shows("configuration_rejected") == 1, "the metric shows it")
    assert process.engine.readiness_problems() == []

    def events(reason: str = "ConfigurationNotInForce") -> list[Any]:
        found: list[Any] = list(
            process.api.list(EVENTS, ListOptions(namespace=DEFAULT_NAMESPACE)).items
        )
        return [one for one in found if one["reason"] == reason]

    well = times(events("ConfigurationInForce"))

    eventually(lambda: bool(events()), "there is an event")
    assert events()[0]["involvedObject"]["name"] == "deferred-quota-config"
    since = process.file.rejection
    process.write("kind: Nonsense")
    eventually(lambda: process.file.rejection != since, "another reason")
    assert process.file.rejection is not None
    assert since is not None
    assert process.file.rejection.since == since.since
    process.write({"deferredResources": [GPU]})
    eventually(lambda: process.shows("configuration_rejected") == 0, "it is mended")
    assert process.shows("configuration_reloads_total", result="rejected") == 2
    assert process.shows("configuration_reloads_total", result="loaded") == 1
    assert process.shows("configuration_hash") == process.file.digest
    assert process.engine.warnings() == []
    eventually(lambda: times(events("ConfigurationInForce")) > well, "an event says that, too")


def times(events: list[Any]) -> int:
    return sum(int(one.get("count", 1)) for one in events)


def test_a_resource_that_was_added_to_the_file_alone_is_reported(process: EngineHarness) -> None:
    process.write({"deferredResources": [GPU, "requests.example.com/fpga"]})
    waits = "requests.example.com/fpga: is still enforced at creation, too"
    eventually(lambda: any(waits in one for one in process.engine.warnings()), "it is told")
    assert "requests.example.com/fpga" in process.engine.policy.deferred_keys
    assert not process.hides("requests.example.com/fpga")  # other replicas may not charge it yet
    assert process.hides(GPU)
    process.defer(GPU, "requests.example.com/fpga")
    eventually(lambda: process.engine.warnings() == [], "it is in force")
    assert process.hides("requests.example.com/fpga")


def test_so_is_the_first_one(process: EngineHarness) -> None:
    process.write({})
    process.defer()
    eventually(lambda: process.engine.warnings() == [], "none is deferred")
    process.write({"deferredResources": [GPU]})
    waits = f"{GPU}: is still enforced at creation, too"
    eventually(lambda: any(waits in one for one in process.engine.warnings()), "it is told")


def test_caches_of_nodes_may_come_and_go(
    process: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for round_ in (1, 2):
        process.write({"nodeFit": "Warn"})
        told = partial(process.shows, "cache_relists_total", kind="nodes")
        eventually(lambda told=told, lists=round_: told() == lists, "nodes are listed")  # type: ignore[misc]
        process.write({})
        eventually(lambda: "nodes" not in process.engine.informers, "they are followed no more")
    assert "housekeeping failed" not in caplog.text


def test_the_controller_starts_with_what_the_registrations_say(tmp_path: Path) -> None:
    process = EngineHarness(tmp_path / "config.yaml")
    process.write({"exemptNamespaces": [TEAM]})
    process.leave_out(TEAM)
    found: list[frozenset[str]] = []
    process.file.poll()
    control = process.engine.controller
    assert control is not None
    begin = control.start

    def start() -> None:
        found.append(process.engine.policy.exempt_namespaces)
        begin()

    control.start = start  # type: ignore[method-assign]
    process.engine.start()
    process.engine.stop()
    assert TEAM in found[0]


# -- the registration itself ----------------------------------------------------------------------


def new_effective(client: ReactiveClient) -> Callable[[], Guard | None]:
    """Return what looks at the registration, each time anew."""
    clock = itertools.count(1.0, 10.0)
    effective = EffectiveConfiguration(client, lambda: next(clock))

    def look() -> Guard | None:
        effective.refresh()
        return effective.guard

    return look


def test_the_version_of_a_registration_is_the_one_that_was_seen_first() -> None:
    client = ReactiveClient(FakeCluster())
    look = new_effective(client)
    assert look() == Guard(NO_GUARD)
    first = client.create(VALIDATING_WEBHOOKS, EngineHarness.registration())
    guard = look()
    assert guard == Guard(first.uid, first.resource_version)
    patch = {"metadata": {"annotations": {"note": "x"}}}
    client.patch(VALIDATING_WEBHOOKS, "deferred-quota", patch)
    assert look() == guard
    client.delete(VALIDATING_WEBHOOKS, "deferred-quota")
    assert look() == Guard(NO_GUARD)
    again = client.create(VALIDATING_WEBHOOKS, EngineHarness.registration())
    assert look() == Guard(again.uid, again.resource_version) != guard


def test_nothing_is_compared_with_a_registration_that_may_not_be_read() -> None:
    client = ReactiveClient(FakeCluster())
    client.create(VALIDATING_WEBHOOKS, EngineHarness.registration())
    client.on("get", VALIDATING_WEBHOOKS, fail(ForbiddenError("no")), times=1)
    client.on("get", VALIDATING_WEBHOOKS, unavailable, times=1)
    look = new_effective(client)
    assert look() == UNREAD_GUARD
    assert look() is None
    assert look() is not None


def test_a_webhook_that_starts_without_a_leader_admits_nothing_by_a_count_from_before(
    process: EngineHarness,
) -> None:
    eventually(lambda: process.decision(cpu="1m") == "reserved", "the quota is counted")
    eventually(lambda: "Guarded" in conditions(process.api), "under this registration")
    process.engine.stop()
    process.api.delete(VALIDATING_WEBHOOKS, "deferred-quota")
    process.api.create(VALIDATING_WEBHOOKS, process.registration(deferred=[GPU]))
    file = ConfigurationFile(process.path, check=check_configuration)
    options = EngineOptions(file, controller=None, follow_ledgers=True, is_registered=True)
    webhook = Engine(process.api, Metrics(), options)
    webhook.start()
    control = replace(
        options, with_handlers=False, controller=ControllerOptions(timings=ControllerTimings())
    )
    leader = Engine(process.api, Metrics(), control)
    try:
        assert webhook.wait_until_ready(10) == []
        for _ in range(3):
            assert process.decision(webhook, cpu="1m") == "undecided"
        leader.start()
        eventually(lambda: process.decision(webhook, cpu="1m") == "reserved", "it is counted")
    finally:
        leader.stop()
        webhook.stop()


def conditions(api: FakeClient) -> list[str]:
    """Return the types of the conditions of the ledger."""
    status: Any = api.get(QUOTA_LEDGERS, "ledger", namespace=TEAM).get("status", {})
    return [one["type"] for one in status.get("conditions", [])]
