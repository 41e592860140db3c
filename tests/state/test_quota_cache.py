"""The quotas of a namespace: from the cache, or as the API server lists them now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.admission.handlers.harness import eventually, new_cluster
from tests.builders import a_quota
from tests.reactions import ReactiveClient
from webhook.kube.api import RESOURCE_QUOTAS
from webhook.kube.informer import InformerTimings
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore

NS = "team-a"


@pytest.fixture
def client() -> Iterator[ReactiveClient]:
    made = ReactiveClient(new_cluster())
    made.create(RESOURCE_QUOTAS, a_quota("p1", uid=""))
    yield made
    made.resume()


@pytest.fixture
def cache(client: ReactiveClient) -> Iterator[QuotaCache]:
    with a_cache(client) as made:
        yield made


@contextmanager
def a_cache(
    client: ReactiveClient, *, holds_terminating: Callable[[], bool] = lambda: False
) -> Iterator[QuotaCache]:
    timing = InformerTimings(first_pause=0.01, longest_pause=0.05)
    made = QuotaCache(
        client,
        lambda: DEFERRED_KEYS,
        holds_terminating=holds_terminating,
        shared=SharedQuotaCache(client, SharedQuotaStore(client), timing=timing),
        timing=timing,
    )
    for informer in (made.informer, made.shared.informer):
        informer.start()
        assert informer.wait_for_sync(30)
        eventually(lambda one=informer: one.is_following, "a watch stands")  # type: ignore[misc]
    try:
        yield made
    finally:
        made.informer.stop()
        made.shared.informer.stop()


def create(
    client: ReactiveClient, name: str, *, namespace: str = NS, hard: dict[str, str] | None = None
) -> None:
    client.create(RESOURCE_QUOTAS, a_quota(name, uid="", namespace=namespace, hard=hard))


def caught_up(client: ReactiveClient, cache: QuotaCache) -> QuotaCache:
    assert cache.informer.wait_for_version(client.cluster.resource_version, 30)
    return cache


def test_quotas_are_derived_once_until_they_change(
    client: ReactiveClient, cache: QuotaCache
) -> None:
    before = cache.up_to_date(NS)
    assert cache.up_to_date(NS) is before
    create(client, "p2", hard={"pods": "1"})
    caught_up(client, cache)
    after = cache.up_to_date(NS)
    assert [quota.name for quota in after.all_quotas] == ["p1", "p2"]
    assert [quota.name for quota in after.deferred.quotas] == ["p1"]


def test_of_more_quotas_than_a_ledger_has_room_for_nothing_is_decided(
    client: ReactiveClient, cache: QuotaCache
) -> None:
    for number in range(128):
        create(client, f"q{number:03}")
    for seen in (caught_up(client, cache).in_namespace(NS), cache.live(NS)):
        assert seen.errors == ("the namespace has more than 128 quotas",)
        assert len(seen.deferred.quotas) == 128
    client.delete(RESOURCE_QUOTAS, "p1", namespace=NS)
    assert caught_up(client, cache).in_namespace(NS).errors == ()


def test_whether_terminating_pods_are_held_is_taken_up_at_once(client: ReactiveClient) -> None:
    holds = False
    with a_cache(client, holds_terminating=lambda: holds) as cache:
        before = caught_up(client, cache).in_namespace(NS).deferred
        holds = True
        for after in (cache.in_namespace(NS).deferred, cache.live(NS).deferred):
            assert after.holds_terminating
            assert after.observed != before.observed


def test_a_quota_that_cannot_be_read_is_reported_until_it_can_or_is_gone(
    client: ReactiveClient, cache: QuotaCache
) -> None:
    for name in ("b", "c"):
        create(client, name, hard={"requests.cpu": "much"})
    caught_up(client, cache)
    assert [text.partition(":")[0] for text in cache.up_to_date(NS).errors] == [
        "quota b cannot be read",
        "quota c cannot be read",
    ]
    patch = {"spec": {"hard": {"requests.cpu": "1"}}}
    client.patch(RESOURCE_QUOTAS, "b", patch, namespace=NS)
    client.delete(RESOURCE_QUOTAS, "c", namespace=NS)
    caught_up(client, cache)
    seen = cache.up_to_date(NS)
    assert seen.errors == ()
    assert [quota.name for quota in seen.deferred.quotas] == ["b", "p1"]


def test_a_namespace_without_quotas_has_none(cache: QuotaCache) -> None:
    seen = cache.up_to_date("elsewhere")
    assert (seen.all_quotas, seen.errors, seen.deferred.quotas) == ((), (), ())


def test_live_quotas_are_those_that_the_api_server_has(
    client: ReactiveClient, cache: QuotaCache
) -> None:
    client.pause(RESOURCE_QUOTAS)
    create(client, "late")
    create(client, "odd", hard={"requests.cpu": "much"})
    assert [quota.name for quota in cache.up_to_date(NS).deferred.quotas] == ["p1"]
    seen = cache.live(NS)
    assert [quota.name for quota in seen.deferred.quotas] == ["late", "p1"]
    assert [text.partition(":")[0] for text in seen.errors] == ["quota odd cannot be read"]


def test_a_live_look_that_showed_no_deferred_quota_is_not_believed_twice(
    client: ReactiveClient, cache: QuotaCache
) -> None:
    assert cache.live("fresh").deferred.quotas == ()
    create(client, "first", namespace="fresh")
    assert [quota.name for quota in cache.live("fresh").deferred.quotas] == ["first"]
