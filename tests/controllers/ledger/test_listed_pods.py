"""A count that waits for a list of the pods: how often one is made, and what an older one shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from tests.builders import a_pod, a_quota
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    NAMESPACES,
    ControllerHarness,
    new_harness,
)
from tests.reactions import Call, Proceed
from webhook.controllers.ledger.drift import DriftDetector, DriftRecorder
from webhook.controllers.runtime.leadership import Leadership, always_leader
from webhook.kube.api import PODS, QUOTA_LEDGERS
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Undecided
from webhook.state.reserver import Reserved

LIST_SECONDS = 2.0


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """A quota of 2 cpu that is not counted yet."""
    with new_harness(a_quota("p1", hard={"requests.cpu": "2"})) as made:
        yield made


def slow_lists(harness: ControllerHarness) -> list[str]:
    """Let lists of pods take seconds, and no watch show more; return those that are made."""
    made: list[str] = []
    harness.client.pause(PODS)

    def take_time(call: Call, proceed: Proceed) -> object:
        made.append(call.namespace)
        harness.pass_time(LIST_SECONDS)
        return proceed()

    harness.client.on("list", PODS, take_time)
    return made


def touch(harness: ControllerHarness, note: object) -> int:
    """Change the Namespace, and let it be seen; return its version."""
    patch = {"metadata": {"annotations": {"note": str(note)}}}
    harness.api.patch(NAMESPACES, NAMESPACE, patch)
    changed = harness.cluster.resource_version
    assert harness.namespaces.informer.wait_for_version(changed, 30)
    return changed


def leave_behind(harness: ControllerHarness, name: str) -> None:
    """Let a list of the pods show one that the cache has not seen; then let the cache see it."""
    harness.client.pause(PODS)
    touch(harness, name)
    harness.pod(name, "0")
    harness.pass_time(1)
    harness.reconcile_once()
    harness.client.resume()
    harness.catch_up()
    harness.client.pause(PODS)


def test_changes_of_its_namespace_do_not_have_pods_listed_all_the_time(
    harness: ControllerHarness,
) -> None:
    harness.step()
    lists, changed = slow_lists(harness), 0
    for number in range(10):
        changed = touch(harness, number)
        harness.reconcile_once()
        harness.pass_time(0.5)
    assert lists == [NAMESPACE]
    assert harness.ledger().pods_resource_version < changed
    harness.pass_time(9 * LIST_SECONDS)
    harness.reconcile_once()
    assert lists == [NAMESPACE] * 2
    assert harness.ledger().pods_resource_version == changed


def test_flips_of_its_label_do_not_have_pods_listed_all_the_time(
    harness: ControllerHarness,
) -> None:
    lists = slow_lists(harness)
    harness.client.resume()
    for number in range(5):
        for mode in (None, "deferred"):
            labels = {"metadata": {"labels": {"deferredquota.io/mode": mode}}}
            harness.api.patch(NAMESPACES, NAMESPACE, labels)
            harness.pod(f"{number}-{mode}", "0")  # as far as that pods are seen
            harness.pass_time(1.5)
            harness.step()
            assert harness.is_tracked() is (mode is not None)  # nothing is left to write
    assert lists == [NAMESPACE]


def test_one_list_is_compared_until_the_cache_has_come_as_far(harness: ControllerHarness) -> None:
    lists = slow_lists(harness)
    harness.pod("a", "1", node="node-1")
    for _ in range(30):
        harness.reconcile_once()
        harness.pass_time(1)
    assert isinstance(harness.reserve("a"), Undecided)
    assert lists == [NAMESPACE]
    harness.client.resume()
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    assert lists == [NAMESPACE]


def test_a_list_is_forgotten_with_what_waits_for_it(harness: ControllerHarness) -> None:
    leave_behind(harness, "a")
    assert harness.state().listing is not None
    harness.pass_time(1)
    harness.reconcile_once()
    assert harness.ledger().accounts
    assert harness.state().listing is None
    leave_behind(harness, "b")
    assert harness.state().listing is not None
    harness.client.resume()
    harness.pod("later", "0")
    harness.pass_time(1)
    harness.step()  # the cache has come as far by itself
    assert harness.state().listing is None


def test_a_list_that_is_older_than_the_loss_of_the_ledger_shows_nothing_of_it(
    harness: ControllerHarness,
) -> None:
    harness.step()
    leave_behind(harness, "a")
    kept = harness.state().listing
    assert kept is not None
    for name in ("big", "next"):
        harness.pod(name, "2")
    assert isinstance(harness.reserve("big"), Reserved)
    harness.bind("big")
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    for seconds in (1.0, EXPIRE_SECONDS + 1, 1.0, 1.0):
        harness.pass_time(seconds)
        harness.mark_dirty()
        harness.reconcile_once()
        assert isinstance(harness.reserve("next"), Undecided)
    harness.client.resume()
    harness.pass_time(1)
    harness.step()
    assert harness.used() == {"requests.cpu": "2"}
    assert isinstance(harness.reserve("next"), QuotaExceeded)


def test_a_first_count_takes_a_list_that_is_not_older_than_the_ledger_it_writes_over(
    harness: ControllerHarness,
) -> None:
    harness.step()
    drift = DriftDetector(
        harness.client,
        harness.controller.usage_cache,
        harness.context.timings,
        leadership=Leadership(always_leader, lambda: None),
        recorder=cast("DriftRecorder", None),
    )
    version, state = harness.version(), harness.state()
    assert version is not None
    harness.client.pause(PODS)
    harness.pod("a", "1", node="node-1")
    assert not drift.verify(NAMESPACE, state, version)
    kept = state.listing
    assert not drift.verify(NAMESPACE, state, version)
    assert state.listing is kept
    later = replace(version, resource_version=version.resource_version + 1)
    assert not drift.verify(NAMESPACE, state, later)
    assert state.listing is not kept
    kept = state.listing
    assert kept is not None
    assert not drift.verify(NAMESPACE, state, None, is_first=False, required_version=kept.version)
    assert state.listing is kept  # it is of that version, whatever was written since
    state.reset()
    assert state.listing is None


def test_a_list_with_a_pod_that_cannot_be_read_waits_until_the_cache_has_it(
    harness: ControllerHarness,
) -> None:
    """It may take all that there is, and keeps the ledger from being counted once it is seen."""
    harness.pod("next")
    harness.step()
    assert isinstance(harness.reserve("next"), Reserved)
    harness.client.pause(PODS)
    odd = a_pod(name="odd", uid="uid-odd", node="node-1", requests={"cpu": "two"})
    harness.cluster.load([(PODS, odd)])
    touch(harness, "opted in meanwhile")
    harness.pass_time(1)
    harness.reconcile_once()
    required = harness.opted.required_version(NAMESPACE)
    assert harness.ledger().pods_resource_version < required
    harness.client.resume()
    harness.pass_time(10)
    harness.step()
    assert harness.conditions()["Counted"] == ("False", "PodsUnreadable")
    assert harness.ledger().pods_resource_version < required
    harness.delete("odd")
    harness.pass_time(60)
    harness.step()
    assert harness.ledger().pods_resource_version >= required
