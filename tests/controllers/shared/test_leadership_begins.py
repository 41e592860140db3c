"""A leadership begins by a cache of namespaces that is not behind, whatever clients do."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import NAMESPACE, ControllerHarness, new_harness
from tests.controllers.shared.shared_quota_steps import OTHER, shared_quota
from tests.reactions import Call, Proceed
from webhook.controllers.shared import participation
from webhook.kube.api import NAMESPACES, UnavailableError


@pytest.fixture
def standby() -> Iterator[ControllerHarness]:
    """Two namespaces that share a quota, and a controller that does not lead yet."""
    with new_harness(
        a_namespace(OTHER), shared_quota("4"), follows_ledgers=True, epoch=[0]
    ) as made:
        made.catch_up()
        yield made


def test_a_namespace_that_changes_all_the_time_is_waited_for(standby: ControllerHarness) -> None:
    def change(_call: Call, proceed: Proceed) -> object:
        patch = {"metadata": {"annotations": {"note": "x"}}}
        standby.client.pause(NAMESPACES)
        standby.api.patch(NAMESPACES, OTHER, patch)
        pages = list(proceed())
        threading.Timer(0.1, standby.client.resume).start()
        return iter(pages)

    standby.client.on("list", NAMESPACES, change)
    assert standby.controller.participation.check_caches() == {NAMESPACE, OTHER}


def test_a_namespace_that_goes_after_the_list_is_not_waited_for(
    standby: ControllerHarness,
) -> None:
    def delete(_call: Call, proceed: Proceed) -> object:
        pages = list(proceed())
        standby.api.delete(NAMESPACES, OTHER)
        standby.catch_up()
        assert standby.namespaces.informer.entry(OTHER) is None
        return iter(pages)

    standby.client.on("list", NAMESPACES, delete)
    assert standby.controller.participation.check_caches() == {NAMESPACE, OTHER}


def test_a_cache_that_stays_behind_lets_no_leadership_begin(
    standby: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participation, "_WAIT_SECONDS", 0.05)
    standby.client.pause(NAMESPACES)
    standby.create(a_namespace("team-c"))
    with pytest.raises(UnavailableError, match="namespaces is behind"):
        standby.controller.participation.check_caches()
