"""Which namespaces have opted in, and by which version, as the cache knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import (
    a_namespace,
    eventually,
    new_cluster,
    opt_in,
    opt_out,
)
from tests.reactions import ReactiveClient, unreachable
from webhook.kube.api import NAMESPACES, ApiError
from webhook.kube.informer import Handler, Informer, InformerTimings
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.object_decoders import decode_namespace

NS = "team-a"
QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)


@pytest.fixture
def client() -> Iterator[ReactiveClient]:
    made = ReactiveClient(new_cluster())
    made.cluster.load([(NAMESPACES, a_namespace())])
    yield made
    made.resume()


@pytest.fixture
def cache(client: ReactiveClient) -> Iterator[NamespaceCache]:
    made = NamespaceCache(client, timing=QUICK)
    made.informer.start()
    assert made.informer.wait_for_sync(30)
    eventually(lambda: made.informer.is_following, "the namespaces are watched")
    yield made
    made.informer.stop()


def version(client: ReactiveClient) -> int:
    """Return the version of the Namespace as it is stored."""
    metadata = client.get(NAMESPACES, NS)["metadata"]
    assert isinstance(metadata, dict)
    return int(metadata["resourceVersion"])


def annotate(client: ReactiveClient, value: str) -> None:
    client.patch(NAMESPACES, NS, {"metadata": {"annotations": {"note": value}}})


def caught_up(client: ReactiveClient, cache: NamespaceCache) -> NamespaceCache:
    assert cache.informer.wait_for_version(version(client), 30)
    return cache


def test_a_namespace_that_is_not_in_the_cache_is_looked_up(
    client: ReactiveClient, cache: NamespaceCache
) -> None:
    assert cache.is_opted_in(NS)
    assert not cache.is_opted_in("nowhere")
    client.pause(NAMESPACES)
    client.create(NAMESPACES, a_namespace("fresh"))
    assert cache.is_opted_in("fresh")
    client.on("get", NAMESPACES, unreachable)
    with pytest.raises(ApiError):
        cache.is_opted_in("unheard-of")


def test_no_more_than_metadata_is_decoded_of_one_that_is_looked_up(
    client: ReactiveClient, cache: NamespaceCache
) -> None:
    client.pause(NAMESPACES)
    assert not cache.is_opted_in("nowhere")
    assert not cache.is_terminating(NS)
    looks = client.calls_of("get", NAMESPACES)
    assert [call.options.get("decode") for call in looks] == [decode_namespace] * 2


def test_opting_out_is_seen(client: ReactiveClient, cache: NamespaceCache) -> None:
    opt_out(client, NS)
    assert not caught_up(client, cache).is_opted_in(NS)


def test_the_first_list_shows_no_more_than_the_present_version(
    client: ReactiveClient, cache: NamespaceCache
) -> None:
    assert cache.opted_in_at(NS) == version(client)
    assert cache.opted_in_at("team-b") == 0


def test_the_watch_shows_the_version_that_brought_the_label(
    client: ReactiveClient, cache: NamespaceCache
) -> None:
    annotate(client, "one")
    assert caught_up(client, cache).opted_in_at(NS) < version(client)
    opt_out(client, NS)
    opt_in(client, NS)
    opted_in_at = version(client)
    annotate(client, "two")
    assert caught_up(client, cache).opted_in_at(NS) == opted_in_at


def test_what_changed_unwatched_may_have_opted_out_and_in(
    client: ReactiveClient, cache: NamespaceCache
) -> None:
    client.pause(NAMESPACES)
    annotate(client, "unseen")
    client.cluster.compact()
    client.cluster.cut_watches()
    client.resume()
    eventually(lambda: cache.informer.relists == 2, "the namespaces are listed anew")
    assert cache.opted_in_at(NS) == version(client)


def test_while_nothing_is_watched_the_api_server_is_asked(
    client: ReactiveClient, cache: NamespaceCache
) -> None:
    cache.informer.stop()
    opt_out(client, NS)
    assert not cache.is_opted_in(NS)
    opt_in(client, NS)
    assert cache.is_opted_in(NS)
    assert cache.opted_in_at(NS) == version(client)


def test_what_the_api_server_said_is_not_taken_back_by_older_news(
    client: ReactiveClient, cache: NamespaceCache
) -> None:
    opt_out(client, NS)
    caught_up(client, cache)
    client.pause(NAMESPACES)
    opt_in(client, NS)
    annotate(client, "later")
    assert cache.is_opted_in(NS)
    client.resume()
    assert caught_up(client, cache).opted_in_at(NS) == version(client)


def test_a_deleted_namespace_is_forgotten(client: ReactiveClient, cache: NamespaceCache) -> None:
    client.delete(NAMESPACES, NS)
    eventually(lambda: cache.informer.entry(NS) is None, "the namespace is gone")
    eventually(lambda: cache.opted_in_at(NS) == 0, "it is forgotten")


def test_a_change_counts_as_soon_as_it_is_in_the_cache(
    client: ReactiveClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers are called afterwards, and a request may come in between."""
    before: list[int] = []
    caches: list[NamespaceCache] = []
    add_handler = Informer.add_handler

    def look_first(informer: Informer[bool], handler: Handler[bool]) -> None:
        add_handler(informer, lambda _change: before.append(caches[0].opted_in_at(NS)))
        add_handler(informer, handler)

    monkeypatch.setattr(Informer, "add_handler", look_first)
    cache = NamespaceCache(client, timing=QUICK)
    caches.append(cache)
    cache.informer.start()
    assert cache.informer.wait_for_sync(30)
    before.clear()
    opt_out(client, NS)
    opt_in(client, NS)
    opted_in_at = version(client)
    annotate(client, "later")
    assert caught_up(client, cache).opted_in_at(NS) == opted_in_at
    assert before == [opted_in_at - 1, opted_in_at, opted_in_at + 1]
    cache.informer.stop()
