"""Ledger objects: compare-and-swap, and what was seen last kept aside."""

from __future__ import annotations

import pytest

from tests.admission.handlers.harness import a_namespace, new_cluster
from tests.reactions import ReactiveClient
from tests.state.ledger_objects import NS, counted, made
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import NAMESPACES, QUOTA_LEDGERS, ConflictError, NotFoundError
from webhook.quota.ledger.ledger_codec import encode_status
from webhook.state.ledger_store import LedgerStore, read_ledger


@pytest.fixture
def client() -> ReactiveClient:
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace())])
    return ReactiveClient(cluster)


def test_nothing_is_known_before_anything_was_read(client: ReactiveClient) -> None:
    store = LedgerStore(client)
    assert (store.known(NS), store.fetch(NS)) == (None, None)


def test_a_new_ledger_has_nothing_counted(client: ReactiveClient) -> None:
    store = LedgerStore(client)
    version = made(store)
    assert (version.ledger, version.pods_barrier) == (None, 0)
    assert store.known(NS) == version == store.fetch(NS)


def test_creating_what_another_client_created_reads_it(client: ReactiveClient) -> None:
    first = LedgerStore(client)
    written = first.write(NS, made(first), counted("1"))
    assert made(LedgerStore(client)) == written


def test_what_is_written_is_read_and_known_without_asking(client: ReactiveClient) -> None:
    store = LedgerStore(client)
    written = store.write(NS, made(store), counted("1"))
    client.calls.clear()
    assert store.known(NS) == written
    assert client.calls == []
    assert LedgerStore(client).fetch(NS) == written
    assert written.ledger == counted("1")


def test_the_size_of_each_ledger_that_was_written_is_observed(client: ReactiveClient) -> None:
    sizes: list[int] = []
    store = LedgerStore(client, on_write=sizes.append)
    old = made(store)
    store.write(NS, old, counted("1"))
    with pytest.raises(ConflictError):
        store.write(NS, old, counted("2"))
    assert sizes == [len(encode_status(counted("1")))]


def test_a_write_over_another_version_changes_nothing(client: ReactiveClient) -> None:
    store, other = LedgerStore(client), LedgerStore(client)
    old = made(store)
    newest = other.write(NS, old, counted("1"))
    with pytest.raises(ConflictError):
        store.write(NS, old, counted("2"))
    assert store.fetch(NS) == newest


def test_an_older_read_does_not_replace_what_is_known(client: ReactiveClient) -> None:
    store = LedgerStore(client)
    old = made(store)
    stored = client.get(QUOTA_LEDGERS, "ledger", namespace=NS)
    newest = store.write(NS, old, counted("1"))
    client.on("get", QUOTA_LEDGERS, lambda _call, _proceed: stored)  # an answer that was overtaken
    assert store.fetch(NS) == old
    assert store.known(NS) == newest


def test_a_deleted_ledger_is_forgotten_and_a_new_one_is_another(client: ReactiveClient) -> None:
    store = LedgerStore(client)
    old = store.write(NS, made(store), counted("1"))
    client.delete(QUOTA_LEDGERS, "ledger", namespace=NS)
    assert store.fetch(NS) is None
    assert store.known(NS) is None
    with pytest.raises(NotFoundError):
        store.write(NS, old, counted("1"))
    new = made(store)
    assert new.uid != old.uid
    with pytest.raises(ConflictError):
        store.write(NS, old, counted("1"))


def test_namespaces_have_ledgers_of_their_own(client: ReactiveClient) -> None:
    store = LedgerStore(client)
    version = made(store)
    client.create(NAMESPACES, a_namespace("team-b"))
    assert store.fetch("team-b") is None
    assert store.known(NS) == version


UNREADABLE = {
    "a version that is none": (
        {"metadata": {"resourceVersion": "new", "uid": "u"}},
        "metadata.resourceVersion",
    ),
    "no version": ({"metadata": {"uid": "u"}}, "metadata.resourceVersion"),
    "metadata that is text": ({"metadata": "x"}, "metadata"),
    "a status that is text": (
        {"metadata": {"resourceVersion": "7", "uid": "u"}, "status": "x"},
        "status",
    ),
}


@pytest.mark.parametrize(("raw", "field"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_object_that_cannot_be_read_names_the_field(raw: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        read_ledger(raw)
    assert caught.value.field == field
