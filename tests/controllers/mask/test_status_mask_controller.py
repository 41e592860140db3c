"""Quotas of namespaces that defer show no deferred resources; all others show everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import (
    a_namespace,
    eventually,
    new_cluster,
    opt_in,
    opt_out,
    wait_until_seen,
)
from tests.builders import a_binding, a_device_claim, a_pod, a_quota
from tests.controllers.controller_harness import NAMESPACE
from tests.reactions import (
    Call,
    Proceed,
    Reaction,
    ReactiveClient,
    fail,
    forbid,
    lose_answer,
    preceded_by,
    throttle,
    unavailable,
)
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.mask.controller import StatusMaskController
from webhook.controllers.mask.webhook_registration import ASSUMED_REGISTERED, RegistrationState
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import EventRecorder
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    EVENTS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    ApiError,
    ForbiddenError,
    Kind,
    NotFoundError,
    RequestTimeoutError,
    UnreachableError,
)
from webhook.kube.informer import Informer, InformerTimings
from webhook.kube.selectors import Term
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.telemetry.metrics import Metrics

Object = dict[str, object]

_QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)
_SOON = ControllerTimings(
    mask_second_count_seconds=0.05,
    quota_controller_seconds=0.05,
    registration_seconds=0.02,
    mask_first_retry_seconds=0.005,
    mask_max_retry_seconds=0.05,
)
HARD = {"requests.cpu": "2", "pods": "3"}
USED = {"requests.cpu": "1", "pods": "1"}


@dataclass
class MaskHarness:
    """A cluster and a running mask repair."""

    cluster: FakeCluster
    epoch: list[int]
    keys: list[frozenset[str]]
    exempt: frozenset[str] = frozenset()
    registration: RegistrationState = ASSUMED_REGISTERED
    timing: ControllerTimings = _SOON
    unmasked_keys: frozenset[str] = frozenset()
    api: FakeClient = field(init=False)
    client: ReactiveClient = field(init=False)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.api = FakeClient(self.cluster)
        self.client = ReactiveClient(self.cluster)
        shared = SharedQuotaCache(self.client, SharedQuotaStore(self.client), timing=_QUICK)
        self.quotas = QuotaCache(self.client, lambda: self.keys[0], shared=shared, timing=_QUICK)
        self.namespaces = NamespaceCache(self.client, timing=_QUICK)
        self.events = EventRecorder(self.api)
        self.controller = StatusMaskController(
            ControllerContext(
                api=self.client,
                leader_epoch=lambda: self.epoch[0],
                timings=self.timing,
                events=self.events,
                metrics=self.metrics,
            ),
            ManagedNamespaces(
                quotas=self.quotas,
                namespaces=self.namespaces,
                exempt=lambda: self.exempt,
                unmasked_keys=lambda: self.unmasked_keys,
            ),
            registration=lambda: self.registration,
        )

    def informers(self) -> list[Informer[Any]]:
        return [self.quotas.informer, self.namespaces.informer]

    def catch_up(self) -> None:
        """Wait until the caches have seen all, and nothing is left to do at once."""
        wait_until_seen(self.cluster, self.informers())
        queue = self.controller.workers.queue
        eventually(
            lambda: not queue.ready_count() and not queue.processing_count(),
            "nothing is left to do",
        )

    def status(self, name: str = "p1", namespace: str = NAMESPACE) -> dict[str, dict[str, str]]:
        stored = self.api.get(RESOURCE_QUOTAS, name, namespace=namespace)
        found = cast("dict[str, dict[str, str]]", stored.get("status", {}))
        return {part: dict(found.get(part, {})) for part in ("hard", "used")}

    def write_status(
        self,
        hard: Mapping[str, str],
        used: Mapping[str, str],
        name: str = "p1",
        namespace: str = NAMESPACE,
    ) -> None:
        """Write a status as the quota controller does."""
        status = {"status": {"hard": dict(hard), "used": dict(used)}}
        self.api.patch(RESOURCE_QUOTAS, name, status, namespace=namespace, subresource="status")

    def count(self, result: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "deferred_quota_quota_status_repairs_total", {"result": result}
        )
        return value or 0.0


def quota(name: str = "p1", **fields: object) -> Object:
    made = a_quota(name, hard=HARD, **fields)  # type: ignore[arg-type]
    made["status"] = {"hard": dict(HARD), "used": dict(USED)}
    return made


def excluded() -> Object:
    made = quota()
    metadata = {**cast("Object", made["metadata"])}
    return {**made, "metadata": {**metadata, "annotations": {"deferredquota.io/exclude": "true"}}}


@contextmanager
def new_mask_harness(
    *objects: tuple[object, Object], mode: str = "deferred", **fields: object
) -> Iterator[MaskHarness]:
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace(mode=mode)), *objects])  # type: ignore[list-item]
    fields = {"epoch": [1], "keys": [DEFERRED_KEYS], **fields}
    mask_harness = MaskHarness(cluster, **fields)  # type: ignore[arg-type]
    mask_harness.controller.start()
    for informer in mask_harness.informers():
        informer.start()
    try:
        yield mask_harness
    finally:
        mask_harness.controller.stop()
        for informer in mask_harness.informers():
            informer.stop()


@pytest.fixture
def mask_harness() -> Iterator[MaskHarness]:
    with new_mask_harness((RESOURCE_QUOTAS, quota())) as made:
        eventually(lambda: made.count("masked") == 1, "it is masked")
        yield made


MASKED = {"hard": {"pods": "3"}, "used": {"pods": "1"}}
FULL = {"hard": HARD, "used": USED}


def test_the_leader_shows_since_when_the_emergency_is_open_and_no_other(
    mask_harness: MaskHarness,
) -> None:
    def shown() -> float | None:
        return mask_harness.metrics.registry.get_sample_value(
            "deferred_quota_emergency_since_seconds"
        )

    mask_harness.registration = RegistrationState("nothing is asked", emergency_since=60)
    eventually(lambda: shown() == 60, "the emergency is shown")
    mask_harness.epoch[0] = 0
    eventually(lambda: shown() == 0, "a former leader shows none")
    mask_harness.epoch[0] = 2
    eventually(lambda: shown() == 60, "the next one shows it")
    mask_harness.registration = ASSUMED_REGISTERED
    eventually(lambda: shown() == 0, "it is closed")


def test_a_status_that_shows_deferred_resources_is_masked(mask_harness: MaskHarness) -> None:
    assert mask_harness.status() == MASKED


def test_a_status_that_is_written_again_is_masked_again(mask_harness: MaskHarness) -> None:
    mask_harness.write_status(HARD, USED)
    eventually(lambda: mask_harness.status() == MASKED, "it is masked again")
    assert mask_harness.count("masked") == 2


def test_a_masked_status_is_left_alone(mask_harness: MaskHarness) -> None:
    mask_harness.catch_up()
    before = mask_harness.cluster.resource_version
    mask_harness.controller.requeue_all()
    mask_harness.catch_up()
    assert mask_harness.cluster.resource_version == before


def test_a_namespace_that_opts_in_is_masked_at_once() -> None:
    with new_mask_harness((RESOURCE_QUOTAS, quota()), mode="") as mask_harness:
        mask_harness.catch_up()
        assert mask_harness.status() == FULL
        opt_in(mask_harness.api, NAMESPACE)
        eventually(lambda: mask_harness.status() == MASKED, "it is masked")


UNTOUCHED: dict[str, Callable[[], object]] = {
    "a namespace that is not opted in": lambda: new_mask_harness(
        (RESOURCE_QUOTAS, quota()), mode=""
    ),
    "an exempt namespace": lambda: new_mask_harness(
        (RESOURCE_QUOTAS, quota()), exempt=frozenset({NAMESPACE})
    ),
    "an excluded quota": lambda: new_mask_harness((RESOURCE_QUOTAS, excluded())),
    "a standby": lambda: new_mask_harness((RESOURCE_QUOTAS, quota()), epoch=[0]),
}


@pytest.mark.parametrize("made", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_what_is_not_ours_is_not_masked(made: Callable[[], object]) -> None:
    with made() as mask_harness:  # type: ignore[attr-defined]
        mask_harness.catch_up()
        mask_harness.controller.requeue_all()
        mask_harness.catch_up()
        assert mask_harness.status() == FULL


def test_a_leadership_that_begins_looks_at_every_quota() -> None:
    with new_mask_harness((RESOURCE_QUOTAS, quota()), epoch=[0]) as mask_harness:
        mask_harness.catch_up()
        assert mask_harness.status() == FULL
        mask_harness.epoch[0] = 7
        eventually(lambda: mask_harness.status() == MASKED, "it is masked")


def test_a_write_that_meets_another_is_tried_again_on_what_is_there(
    mask_harness: MaskHarness,
) -> None:
    def label(_call: Call) -> None:
        labels = {"metadata": {"labels": {"a": "b"}}}
        mask_harness.api.patch(RESOURCE_QUOTAS, "p1", labels, namespace=NAMESPACE)

    mask_harness.client.on("patch", RESOURCE_QUOTAS, preceded_by(label), times=1)
    mask_harness.write_status(HARD, USED)
    eventually(lambda: mask_harness.status() == MASKED, "it is masked again")
    assert mask_harness.count("conflict") == 1


@pytest.mark.parametrize("fault", [unavailable, lose_answer, throttle])
def test_a_write_that_fails_is_tried_again(mask_harness: MaskHarness, fault: Reaction) -> None:
    mask_harness.client.on("patch", RESOURCE_QUOTAS, fault, times=2)
    mask_harness.write_status(HARD, USED)
    eventually(lambda: mask_harness.status() == MASKED, "it is masked again")
    assert mask_harness.count("failed") >= 1


# -- back to the platform ------------------------------------------------------------------


def pods(mask_harness: MaskHarness) -> None:
    """A pod of 500m that runs, one of 1 cpu that waits, and one that has ended."""
    for name, cpu, status in (
        ("runs", "500m", {}),
        ("waits", "1", {}),
        ("over", "7", {"phase": "Succeeded"}),
    ):
        made = a_pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, status=status)
        mask_harness.cluster.load([(PODS, made)])
    mask_harness.api.bind(a_binding("runs"))


def test_opting_out_completes_the_status_with_all_pods_that_live(mask_harness: MaskHarness) -> None:
    pods(mask_harness)
    opt_out(mask_harness.api, NAMESPACE)
    full = {"hard": HARD, "used": {**USED, "requests.cpu": "1500m"}}
    eventually(lambda: mask_harness.status() == full, "the status is complete")
    mask_harness.catch_up()
    assert mask_harness.count("restored") == 1


def test_a_pod_that_came_between_the_list_and_the_write_is_counted_the_second_time(
    mask_harness: MaskHarness,
) -> None:
    def come(_call: Call) -> None:
        late = a_pod(name="late", uid="uid-late", requests={"cpu": "1"})
        mask_harness.cluster.load([(PODS, late)])

    mask_harness.client.on("patch", RESOURCE_QUOTAS, preceded_by(come), times=1)
    pods(mask_harness)
    opt_out(mask_harness.api, NAMESPACE)
    full = {"hard": HARD, "used": {**USED, "requests.cpu": "2500m"}}
    eventually(lambda: mask_harness.status() == full, "the late pod is counted")


def test_excluding_a_quota_completes_its_status_and_including_it_masks_it(
    mask_harness: MaskHarness,
) -> None:
    def annotate(value: str | None) -> None:
        patch = {"metadata": {"annotations": {"deferredquota.io/exclude": value}}}
        mask_harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)

    annotate("true")
    eventually(lambda: mask_harness.status()["hard"] == HARD, "the status is complete")
    assert mask_harness.status()["used"]["requests.cpu"] == "0"
    annotate(None)
    eventually(lambda: "requests.cpu" not in mask_harness.status()["hard"], "it is masked")
    mask_harness.catch_up()
    assert "requests.cpu" not in mask_harness.status()["used"]


def test_a_status_left_masked_by_a_process_that_is_gone_is_completed() -> None:
    masked = {**quota(), "status": MASKED}
    ledger: Object = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "QuotaLedger",
        "metadata": {"name": "ledger", "namespace": NAMESPACE},
    }
    with new_mask_harness(
        (RESOURCE_QUOTAS, masked), (QUOTA_LEDGERS, ledger), mode=""
    ) as mask_harness:
        eventually(lambda: mask_harness.status()["hard"] == HARD, "the status is complete")


SHADOW_ONLY: Object = {
    "apiVersion": "deferredquota.io/v1alpha1",
    "kind": "QuotaLedger",
    "metadata": {"name": "ledger", "namespace": NAMESPACE},
    "status": {"shadow": {"since": "2026-11-26T02:00:00Z"}},
}


@pytest.mark.parametrize("ledgers", [(), ((QUOTA_LEDGERS, SHADOW_ONLY),)], ids=["none", "shadow"])
def test_a_status_that_was_never_masked_is_left_to_the_quota_controller(
    ledgers: tuple[tuple[Kind, Object], ...],
) -> None:
    fresh = {**quota(), "status": {}}
    with new_mask_harness((RESOURCE_QUOTAS, fresh), *ledgers, mode="") as mask_harness:
        eventually(
            lambda: (
                mask_harness.controller.workers.queue.seconds_to_next() == float("inf")
                and len(mask_harness.client.calls) >= 3
            ),
            "it was looked at",
        )
        assert mask_harness.status() == {"hard": {}, "used": {}}


GPU = "requests.example.com/gpu"


@contextmanager
def masking_gpus() -> Iterator[MaskHarness]:
    """Hide a quota's GPUs in a namespace that has two claims."""
    made = quota()
    made["spec"] = {"hard": {GPU: "4", **HARD}}
    made["status"] = {"hard": {GPU: "4", **HARD}, "used": {GPU: "2", **USED}}
    claims = [a_device_claim(name=f"c{number}") for number in range(2)]
    with new_mask_harness(
        (RESOURCE_QUOTAS, made),
        *((RESOURCE_CLAIMS, claim) for claim in claims),
        keys=[DEFERRED_KEYS | {GPU}],
    ) as harness:
        eventually(lambda: harness.status() == MASKED, "it is masked")
        yield harness


def test_devices_of_claims_are_used_when_a_namespace_has_opted_out() -> None:
    with masking_gpus() as harness:
        opt_out(harness.api, NAMESPACE)
        eventually(lambda: harness.status()["hard"] == {GPU: "4", **HARD}, "it is complete")
        assert harness.status()["used"][GPU] == "2"
        harness.catch_up()
        assert harness.count("restored") == 1


def test_a_claim_that_came_between_the_list_and_the_write_is_counted_the_second_time() -> None:
    def come(_call: Call) -> None:
        harness.cluster.load([(RESOURCE_CLAIMS, a_device_claim(name="late"))])

    with masking_gpus() as harness:
        harness.client.on("patch", RESOURCE_QUOTAS, preceded_by(come), times=1)
        opt_out(harness.api, NAMESPACE)
        eventually(lambda: harness.status()["used"].get(GPU) == "3", "the late claim is counted")


def test_what_may_not_be_listed_uses_up_the_quota_and_what_does_not_exist_none_of_it() -> None:
    for reaction, used in ((forbid, "4"), (fail(NotFoundError("no such resource")), "0")):
        with masking_gpus() as harness:
            harness.client.on("list", RESOURCE_CLAIMS, reaction)
            opt_out(harness.api, NAMESPACE)
            eventually(lambda: harness.status()["hard"] == {GPU: "4", **HARD}, "it is complete")
            assert harness.status()["used"] == {GPU: used, "requests.cpu": "0", "pods": "1"}


def test_claims_are_not_read_for_the_sake_of_compute(mask_harness: MaskHarness) -> None:
    opt_out(mask_harness.api, NAMESPACE)
    eventually(lambda: mask_harness.status()["hard"] == HARD, "the status is complete")
    assert not mask_harness.client.calls_of("list", RESOURCE_CLAIMS)


def test_a_resource_that_is_no_longer_deferred_comes_back(mask_harness: MaskHarness) -> None:
    mask_harness.catch_up()
    mask_harness.keys[0] = frozenset({"requests.memory"})
    mask_harness.controller.requeue_all()
    eventually(lambda: mask_harness.status()["hard"] == HARD, "the status is complete")
    assert mask_harness.status()["used"]["requests.cpu"] == "0"


def said(mask_harness: MaskHarness) -> set[tuple[object, object]]:
    """Return level and reason of every event."""
    mask_harness.events.start()
    mask_harness.events.stop()
    return {(event["type"], event["reason"]) for event in mask_harness.api.list(EVENTS).items}


def test_users_learn_that_the_platform_has_the_quota_again(mask_harness: MaskHarness) -> None:
    opt_out(mask_harness.api, NAMESPACE)
    eventually(lambda: mask_harness.status()["hard"] == HARD, "the status is complete")
    assert said(mask_harness) == {("Normal", "EnforcedAtCreation")}


def test_a_quota_whose_scopes_cannot_be_evaluated_is_left_alone() -> None:
    odd = quota(expressions=[{"scopeName": "PriorityClass", "operator": "In", "values": ["a b"]}])
    with new_mask_harness((RESOURCE_QUOTAS, odd)) as mask_harness:
        eventually(lambda: mask_harness.count("masked") == 1, "it is masked")
        pods(mask_harness)
        opt_out(mask_harness.api, NAMESPACE)
        mask_harness.catch_up()
        assert mask_harness.status() == MASKED


# -- nothing is hidden that nobody guards --------------------------------------------------


def test_a_namespace_that_becomes_exempt_gets_its_status_back(mask_harness: MaskHarness) -> None:
    mask_harness.catch_up()
    mask_harness.exempt = frozenset({NAMESPACE})
    mask_harness.controller.requeue_all()
    eventually(lambda: mask_harness.status()["hard"] == HARD, "the status is complete")
    mask_harness.exempt = frozenset()
    mask_harness.controller.requeue_all()
    eventually(lambda: "requests.cpu" not in mask_harness.status()["hard"], "it is masked again")


def test_a_namespace_that_opted_out_unseen_is_not_masked() -> None:
    with new_mask_harness((RESOURCE_QUOTAS, quota())) as mask_harness:
        eventually(lambda: mask_harness.count("masked") == 1, "it is masked")
        mask_harness.namespaces.informer.stop()  # what the labels are now is not seen any more
        opt_out(mask_harness.api, NAMESPACE)
        mask_harness.client.calls.clear()
        mask_harness.write_status(HARD, USED)
        eventually(
            lambda: bool(mask_harness.client.calls_of("get", NAMESPACES)),
            "the API server is asked what the label is",
        )
        eventually(
            lambda: not mask_harness.controller.workers.queue.processing_count(),
            "and the quota was looked at",
        )
        assert mask_harness.status() == FULL
        assert mask_harness.count("masked") == 1


NO_GUARD = RegistrationState("there is no guard")


def test_what_was_hidden_comes_back_when_the_guard_goes_and_goes_when_it_comes(
    mask_harness: MaskHarness,
) -> None:
    pods(mask_harness)
    mask_harness.registration = NO_GUARD
    full = {"hard": HARD, "used": {**USED, "requests.cpu": "1500m"}}
    eventually(lambda: mask_harness.status() == full, "the status is complete")
    assert mask_harness.count("unguarded") == 1
    mask_harness.registration = ASSUMED_REGISTERED
    eventually(lambda: "requests.cpu" not in mask_harness.status()["hard"], "it is masked again")
    assert ("Warning", "NotGuarded") in said(mask_harness)


def test_the_leader_shows_that_no_registration_guards_and_no_other(
    mask_harness: MaskHarness,
) -> None:
    def shown() -> float | None:
        return mask_harness.metrics.registry.get_sample_value("deferred_quota_guard_missing")

    assert shown() == 0
    mask_harness.registration = NO_GUARD
    eventually(lambda: shown() == 1, "the guard is missing")
    mask_harness.epoch[0] = 0
    eventually(lambda: shown() == 0, "a former leader shows none")
    mask_harness.epoch[0] = 2
    eventually(lambda: shown() == 1, "the next one shows it")
    mask_harness.registration = replace(NO_GUARD, is_settling=True)
    eventually(lambda: shown() == 0, "it stands, and is new")


def test_a_guard_that_was_gone_for_a_moment_hides_again_what_came_back_in_it() -> None:
    seldom = replace(_SOON, registration_seconds=1.0)
    with new_mask_harness((RESOURCE_QUOTAS, quota()), timing=seldom) as mask_harness:
        eventually(lambda: mask_harness.count("masked") == 1, "it is masked")
        mask_harness.catch_up()
        mask_harness.registration = NO_GUARD
        mask_harness.controller.requeue_all()
        eventually(
            lambda: "requests.cpu" in mask_harness.status()["hard"], "the status is complete"
        )
        mask_harness.catch_up()
        mask_harness.registration = ASSUMED_REGISTERED
        eventually(
            lambda: "requests.cpu" not in mask_harness.status()["hard"], "it is masked again"
        )


def test_nothing_is_masked_before_there_is_a_guard() -> None:
    with new_mask_harness((RESOURCE_QUOTAS, quota()), registration=NO_GUARD) as mask_harness:
        mask_harness.catch_up()
        mask_harness.write_status(HARD, {**USED, "requests.cpu": "1500m"})
        mask_harness.catch_up()
        assert mask_harness.count("masked") == 0
        assert mask_harness.status()["hard"] == HARD


def test_a_namespace_that_the_guard_does_not_select_is_not_masked() -> None:
    elsewhere = RegistrationState(
        selector_terms=(Term("deferredquota.io/mode", frozenset({"other"})),)
    )
    with new_mask_harness(
        (RESOURCE_QUOTAS, {**quota(), "status": MASKED}), registration=elsewhere
    ) as mask_harness:
        eventually(lambda: mask_harness.status()["hard"] == HARD, "the status is complete")
        assert mask_harness.count("masked") == 0


def test_a_resource_that_is_not_deferred_comes_back_although_this_process_is_new() -> None:
    hidden = {**quota(), "status": MASKED}
    keys = [frozenset({"requests.memory"})]
    with new_mask_harness((RESOURCE_QUOTAS, hidden), keys=keys) as mask_harness:
        eventually(lambda: mask_harness.status()["hard"] == HARD, "the status is complete")


def hide_cpu(call: Call, proceed: Proceed) -> Any:
    """Hide a resource in a status that is written, as a mask does that is installed."""
    shown = {
        part: {**values, "requests.cpu": None}
        for part, values in cast("Mapping[str, Any]", call.body)["status"].items()
    }
    return proceed(replace(call, body={"status": shown}))


def test_what_a_mask_hides_again_is_said_aloud_and_tried_until_it_stays() -> None:
    timing = replace(_SOON, mask_max_retry_seconds=0.02)
    with new_mask_harness((RESOURCE_QUOTAS, quota()), timing=timing) as mask_harness:
        eventually(lambda: mask_harness.count("masked") == 1, "it is masked")
        mask = mask_harness.client.on("patch", RESOURCE_QUOTAS, hide_cpu)
        mask_harness.keys[0] = frozenset({"requests.memory"})
        mask_harness.controller.requeue_all()
        eventually(lambda: mask_harness.count("undone") >= 3, "it is tried again and again")
        assert mask_harness.status() == MASKED
        mask.remove()
        eventually(lambda: mask_harness.status()["hard"] == HARD, "it stays at last")
        assert ("Warning", "NotEnforced") in said(mask_harness)


def test_what_is_charged_and_still_hidden_is_brought_back_without_an_alarm() -> None:
    timing = replace(_SOON, mask_max_retry_seconds=0.02)
    with new_mask_harness((RESOURCE_QUOTAS, quota()), timing=timing) as mask_harness:
        eventually(lambda: mask_harness.count("masked") == 1, "it is masked")
        mask = mask_harness.client.on("patch", RESOURCE_QUOTAS, hide_cpu)
        mask_harness.unmasked_keys = frozenset({"requests.cpu"})
        mask_harness.controller.requeue_all()
        eventually(lambda: mask_harness.count("undone") >= 3, "it is tried again and again")
        mask.remove()
        eventually(lambda: mask_harness.status()["hard"] == HARD, "it stays at last")
        assert ("Warning", "NotEnforced") not in said(mask_harness)


def test_a_mask_that_knows_of_an_opt_out_a_moment_later_is_no_fault(
    mask_harness: MaskHarness, caplog: pytest.LogCaptureFixture
) -> None:
    mask_harness.client.on("patch", RESOURCE_QUOTAS, hide_cpu, times=1)
    opt_out(mask_harness.api, NAMESPACE)
    eventually(lambda: mask_harness.status()["hard"] == HARD, "it is brought back")
    assert mask_harness.count("undone") == 1
    assert ("Warning", "NotEnforced") not in said(mask_harness)
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


def test_an_installation_whose_mask_comes_right_after_its_guard_is_no_fault(
    mask_harness: MaskHarness, caplog: pytest.LogCaptureFixture
) -> None:
    mask_harness.client.on("patch", RESOURCE_QUOTAS, hide_cpu)
    mask_harness.registration = RegistrationState("has only just changed", is_settling=True)
    eventually(lambda: mask_harness.count("undone") >= 2, "it is brought back, and hidden again")
    mask_harness.registration = ASSUMED_REGISTERED
    mask_harness.catch_up()
    assert mask_harness.status() == MASKED
    assert ("Warning", "NotEnforced") not in said(mask_harness)
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


def forbid_gpus(call: Call, proceed: Proceed) -> Any:
    """Refuse a status that hides a resource which was not installed."""
    if "requests.example.com/gpu" in str(call.body):
        raise ForbiddenError("our service accounts take only deferred resources out")
    return proceed()


def test_a_resource_that_was_not_installed_does_not_show_the_others() -> None:
    gpu = "requests.example.com/gpu"
    shown = {"hard": {**HARD, gpu: "2"}, "used": {**USED, gpu: "0"}}
    with new_mask_harness(
        (RESOURCE_QUOTAS, {**quota(), "status": shown}), exempt=frozenset({NAMESPACE})
    ) as mask_harness:
        mask_harness.client.on("patch", RESOURCE_QUOTAS, forbid_gpus)
        mask_harness.keys[0] = DEFERRED_KEYS | {gpu}
        mask_harness.exempt = frozenset()
        mask_harness.controller.requeue_all()
        left = {"hard": {**MASKED["hard"], gpu: "2"}, "used": {**MASKED["used"], gpu: "0"}}
        eventually(lambda: mask_harness.status() == left, "all others are hidden")


def test_an_excluded_quota_is_counted_a_second_time_and_not_at_once_by_its_own_write() -> None:
    clock = [1000.0]
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace()), (RESOURCE_QUOTAS, {**excluded(), "status": MASKED})])
    timing = ControllerTimings(clock=lambda: clock[0])
    made = MaskHarness(cluster, [1], [DEFERRED_KEYS], timing=timing)

    def used() -> object:
        wait_until_seen(cluster, made.informers())
        while made.controller.workers.step():
            wait_until_seen(cluster, made.informers())
        return made.status()["used"].get("requests.cpu")

    for informer in made.informers():
        informer.start()
    try:
        assert used() == "0"
        cluster.load([(PODS, a_pod(name="late", uid="uid-late", requests={"cpu": "1"}))])
        assert used() == "0"
        clock[0] += 3
        assert used() == "1"
        assert len(made.client.calls_of("list", PODS)) == 2
        for value, shown in ((None, None), ("true", "1")):  # and anew where it was hidden again
            clock[0] += 0.5
            annotations = {"annotations": {"deferredquota.io/exclude": value}}
            patch = {"metadata": annotations}
            made.client.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
            assert used() == shown
        cluster.load([(PODS, a_pod(name="later", uid="uid-later", requests={"cpu": "1"}))])
        clock[0] += 3
        assert used() == "2"
    finally:
        for informer in made.informers():
            informer.stop()


@contextmanager
def slowly_counted() -> Iterator[tuple[MaskHarness, list[float]]]:
    """Let a list of the pods of the namespace `slow` take a second of a clock that is set."""
    clock = [1000.0]
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace(name)) for name in (NAMESPACE, "slow")])
    timing = ControllerTimings(clock=lambda: clock[0])
    made = MaskHarness(cluster, [1], [DEFERRED_KEYS], timing=timing)

    def take(call: Call) -> None:
        clock[0] += call.namespace == "slow"

    made.client.on("list", PODS, preceded_by(take))
    for informer in made.informers():
        informer.start()
    try:
        yield made, clock
    finally:
        for informer in made.informers():
            informer.stop()


def load_hidden(made: MaskHarness, name: str, namespace: str) -> None:
    """Add a quota that is excluded, and of which something is hidden."""
    annotations = {"annotations": {"deferredquota.io/exclude": "true"}}
    one = quota(name, namespace=namespace, uid=f"uid-{name}", metadata=annotations)
    made.cluster.load([(RESOURCE_QUOTAS, {**one, "status": MASKED})])
    wait_until_seen(made.cluster, made.informers())


def lists_of(made: MaskHarness, namespace: str) -> int:
    """Return how often the pods of a namespace were listed."""
    listed = [call.namespace for call in made.client.calls_of("list", PODS)]
    return listed.count(namespace)


def drain_after(made: MaskHarness, clock: list[float], seconds: float) -> None:
    """Let time pass, and reconcile what is due then, and what follows from it at once."""
    wait_until_seen(made.cluster, made.informers())
    clock[0] += seconds
    made.controller.workers.drain()


def come_late(made: MaskHarness) -> None:
    """Let a pod come after a list."""
    late = a_pod(name="late", uid="uid-late", namespace="slow", requests={"cpu": "1"})
    made.cluster.load([(PODS, late)])


def test_a_namespace_rests_after_a_count_and_others_go_first() -> None:
    names = [f"q{number}" for number in range(3)]
    with slowly_counted() as (made, clock):
        for name in names:
            load_hidden(made, name, "slow")
        load_hidden(made, "p1", NAMESPACE)
        made.controller.workers.drain()
        assert made.status()["hard"] == HARD
        assert [made.status(name, "slow") == MASKED for name in names].count(True) == 2
        drain_after(made, clock, 0.9)  # it rests as long as it took
        assert [made.status(name, "slow") == MASKED for name in names].count(True) == 2


def test_one_list_serves_all_quotas_of_a_namespace() -> None:
    names = [f"q{number}" for number in range(20)]
    with slowly_counted() as (made, clock):
        for name in names:
            load_hidden(made, name, "slow")
        made.controller.workers.drain()
        drain_after(made, clock, 1.1)
        assert [made.status(name, "slow")["hard"] for name in names] == [HARD] * 20
        assert lists_of(made, "slow") == 1
        for _ in range(10):
            drain_after(made, clock, 1.1)
        assert lists_of(made, "slow") == 3  # one quota came before the others: so the second time
        assert made.controller.workers.queue.seconds_to_next() == float("inf")


def test_what_came_after_a_list_is_counted_the_second_time() -> None:
    with slowly_counted() as (made, clock):
        for name in ("q1", "q2"):
            load_hidden(made, name, "slow")
        made.controller.workers.drain()
        come_late(made)
        drain_after(made, clock, 1.1)
        used = [made.status(name, "slow")["used"]["requests.cpu"] for name in ("q1", "q2")]
        assert used == ["0", "0"]
        for _ in range(6):
            drain_after(made, clock, 1.1)
        used = [made.status(name, "slow")["used"]["requests.cpu"] for name in ("q1", "q2")]
        assert used == ["1", "1"]


def charge(made: MaskHarness, _clock: list[float]) -> None:
    """Let the API server charge something to a quota."""
    made.write_status(MASKED["hard"], {"pods": "2"}, "q2", "slow")


def edit_namespace(made: MaskHarness, _clock: list[float]) -> None:
    """Let the namespace defer for a moment."""
    opt_out(made.api, "slow")
    opt_in(made.api, "slow")


def wait_long(_made: MaskHarness, clock: list[float]) -> None:
    """Let a list become too old."""
    clock[0] += 10


@pytest.mark.parametrize("change", [charge, edit_namespace, wait_long])
def test_a_list_is_made_anew(change: Callable[[MaskHarness, list[float]], None]) -> None:
    with slowly_counted() as (made, clock):
        for name in ("q1", "q2"):
            load_hidden(made, name, "slow")
        made.controller.workers.drain()
        come_late(made)
        drain_after(made, clock, 0)  # one is looked at after its own write
        change(made, clock)
        drain_after(made, clock, 1.1)
        assert made.status("q2", "slow")["used"]["requests.cpu"] == "1"


def test_no_list_is_kept_of_pods_of_very_many_names() -> None:
    with slowly_counted() as (made, clock):
        names = {f"x{number}.example.com/r": "0" for number in range(40)}
        made.cluster.load([(PODS, a_pod(namespace="slow", requests={"cpu": "1", **names}))])
        for name in ("q1", "q2"):
            load_hidden(made, name, "slow")
        made.controller.workers.drain()
        drain_after(made, clock, 1.1)
        used = [made.status(name, "slow")["used"]["requests.cpu"] for name in ("q1", "q2")]
        assert used == ["1", "1"]
        assert lists_of(made, "slow") == 2


def test_a_namespace_that_rests_keeps_its_failures() -> None:
    with slowly_counted() as (made, clock):
        made.client.on("patch", RESOURCE_QUOTAS, hide_cpu)
        load_hidden(made, "q1", "slow")
        for _ in range(3):
            made.controller.workers.drain()
            wait_until_seen(made.cluster, made.informers())
            clock[0] += 0.5  # it rests, and is asked for
            made.controller.workers.drain()
            clock[0] += 5
        assert made.count("undone") == 3
        assert ("Warning", "NotEnforced") in said(made)


@pytest.mark.parametrize(
    ("error", "lists"),
    [
        (NotFoundError("no such namespace"), 1),
        (RequestTimeoutError("no answer within 10 s"), 1),
        (UnreachableError("no connection within 10 s"), 2),
    ],
    ids=["gone", "slow", "away"],
)
def test_a_count_that_fails_is_followed_by_a_rest_but_in_an_outage(
    error: ApiError, lists: int
) -> None:
    def fail_late(_call: Call, _proceed: Proceed) -> Any:
        clock[0] += 1
        raise error

    with slowly_counted() as (made, clock):
        made.client.on("list", PODS, fail_late)
        for name in ("q1", "q2"):
            load_hidden(made, name, "slow")
        made.controller.workers.drain()
        assert len(made.client.calls_of("list", PODS)) == lists


def test_all_that_a_pod_of_very_many_names_asks_for_is_counted() -> None:
    others = {f"x{number}.example.com/r": "0" for number in range(40)}
    amounts = {"cpu": "1", "example.com/gpu": "2", **others}
    made = quota()
    made["spec"] = {"hard": {GPU: "4", **HARD}}
    made["status"] = {"hard": {GPU: "4", **HARD}, "used": {GPU: "2", **USED}}
    keys = [DEFERRED_KEYS | {GPU}]
    with new_mask_harness((RESOURCE_QUOTAS, made), keys=keys) as harness:
        eventually(lambda: harness.status() == MASKED, "it is masked")
        harness.cluster.load([(PODS, a_pod(requests=amounts))])
        opt_out(harness.api, NAMESPACE)
        eventually(lambda: harness.status()["hard"] == {GPU: "4", **HARD}, "it is complete")
        assert harness.status()["used"][GPU] == "2"
