"""Of very many shared quotas each costs as much as the namespaces that share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.admission.handlers.harness import a_namespace, opt_out
from tests.controllers.controller_harness import NAMESPACE, ControllerHarness, new_harness
from tests.controllers.shared.shared_quota_steps import is_complete, settle, shared_quota, steps
from tests.counting import calls_of
from webhook.controllers.shared.completeness import Completeness
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS
from webhook.quota.shared.cluster_quotas import NAMESPACE_NAME_LABEL, ClusterQuota
from webhook.state.quota_cache import QuotaCache
from webhook.state.reserver import Reserved

NUMBER = 30
TEAMS = [f"team-{number}" for number in range(NUMBER)]


def of_one(namespace: str) -> dict[str, object]:
    """As the `max` of an elastic quota is charged."""
    named = {"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": [namespace]}
    return shared_quota("4", namespace, namespaceSelector={"matchExpressions": [named]})


def many() -> AbstractContextManager[ControllerHarness]:
    objects = [*map(a_namespace, TEAMS), *map(of_one, TEAMS)]
    return new_harness(*objects, follows_ledgers=True)


@contextmanager
def settled() -> Iterator[ControllerHarness]:
    with many() as harness:
        steps(harness)
        assert all(harness.ledger(one).accounts.keys() == {f"cdq/{one}"} for one in TEAMS)
        yield harness


def test_a_bind_has_each_namespace_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with settled() as harness:
        harness.pod("one", "1", TEAMS[0])
        harness.catch_up()
        assert isinstance(harness.reserve("one", TEAMS[0]), Reserved)
        harness.catch_up()
        looks = calls_of(monkeypatch, QuotaCache, "in_namespace")
        harness.controller.poll()
        assert len(looks) <= NUMBER + 4
        looks.clear()
        assert harness.controller.pending_shared_quotas() == []
        assert len(looks) == NUMBER + 1


def test_at_the_start_each_quota_is_compared_with_the_namespaces_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matches = calls_of(monkeypatch, ClusterQuota, "selects")
    with many() as harness:
        harness.step()
        assert NUMBER <= len(matches) <= 4 * NUMBER


def test_an_edit_has_the_namespaces_counted_that_it_concerns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with settled() as harness:
        matches = calls_of(monkeypatch, ClusterQuota, "selects")
        looks = calls_of(monkeypatch, QuotaCache, "in_namespace")
        edit = {"spec": {"hard": {"requests.cpu": "5"}}}
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, TEAMS[3], edit)
        harness.catch_up()
        assert len(matches) <= 2
        assert looks == []
        dirty = {
            name for name, one in harness.controller.usage_cache.namespaces.items() if one.is_dirty
        }
        assert dirty == {TEAMS[3]}
        steps(harness)
        assert len(matches) <= 2 + 2 * NUMBER


def test_a_quota_that_names_others_now_is_counted_by_both() -> None:
    with settled() as harness:
        spec = of_one(TEAMS[1])["spec"]
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, TEAMS[0], {"spec": spec})
        steps(harness)
        assert harness.ledger(TEAMS[0]).accounts == {}
        assert harness.ledger(TEAMS[1]).accounts.keys() == {f"cdq/{one}" for one in TEAMS[:2]}
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS,
            TEAMS[0],
            {"spec": {"namespaceSelector": {"matchExpressions": None}}},
        )
        steps(harness)
        assert all(f"cdq/{TEAMS[0]}" in harness.ledger(one).accounts for one in TEAMS)


def by_label(team: str) -> dict[str, object]:
    return shared_quota("4", team, namespaceSelector={"matchLabels": {"team": team}})


def test_an_edit_is_compared_with_each_namespace_and_no_other_quota_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects = [*map(a_namespace, TEAMS), *map(by_label, TEAMS)]
    for one, team in zip(objects, TEAMS, strict=False):
        one["metadata"]["labels"]["team"] = team  # type: ignore[index]
    with new_harness(*objects, follows_ledgers=True) as harness:
        steps(harness)
        matches = calls_of(monkeypatch, ClusterQuota, "selects")
        edit = {"spec": {"hard": {"requests.cpu": "5"}}}
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, TEAMS[3], edit)
        harness.catch_up()
        assert harness.controller.usage_cache.all_sharing().keys() == {f"cdq/{x}" for x in TEAMS}
        assert len(matches) <= 8 * NUMBER
        joined = {"spec": {"namespaceSelector": {"matchLabels": {"team": TEAMS[1]}}}}
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, TEAMS[3], joined)
        harness.catch_up()
        sharing = harness.controller.usage_cache.all_sharing()
        assert sharing[f"cdq/{TEAMS[3]}"] == {TEAMS[1]}
        harness.api.delete(CLUSTER_DEFERRED_QUOTAS, TEAMS[1])
        harness.catch_up()
        sharing = harness.controller.usage_cache.all_sharing()
        assert sharing.keys() == {f"cdq/{one}" for one in TEAMS if one != TEAMS[1]}


def test_of_very_many_namespaces_all_are_looked_at_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_harness(*map(a_namespace, TEAMS), shared_quota(), follows_ledgers=True) as harness:
        steps(harness)
        assert is_complete(harness)
        looks = calls_of(monkeypatch, Completeness, "_missing")
        edit = {"spec": {"hard": {"requests.cpu": "5"}}}
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", edit)
        steps(harness)
        assert is_complete(harness)
        assert len(looks) <= 8


def test_one_that_was_waited_for_and_leaves_is_waited_for_no_more() -> None:
    with new_harness(*map(a_namespace, TEAMS), shared_quota(), follows_ledgers=True) as harness:
        steps(harness)
        edit = {"spec": {"hard": {"requests.cpu": "5"}}}
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", edit)
        harness.catch_up()
        for team in (*TEAMS[:-1], *TEAMS[:-1]):
            settle(harness, team)
        assert not is_complete(harness)
        opt_out(harness.api, TEAMS[-1])
        opt_out(harness.api, NAMESPACE)
        steps(harness, 6)
        shared = harness.store.fetch("cdq/both")
        assert shared is not None
        assert shared.grants.observed is not None
        assert shared.grants.namespaces.keys() == {*TEAMS[:-1]}
