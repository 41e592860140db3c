"""Objects of which a part is kept: few large ones are read at a time, small ones beside them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.builders import Object
from tests.kube.rest.served import served
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import CONFIG_MAPS, Decode, NotFoundError, UnavailableError
from webhook.kube.codec import decode_object
from webhook.kube.rest import RestClient
from webhook.kube.rest.client import SMALL_BYTES


def a_cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.load([(CONFIG_MAPS, a_note("small", 10)), (CONFIG_MAPS, a_note("large", SMALL_BYTES))])
    return cluster


def a_note(name: str, length: int) -> Object:
    metadata = {"name": name, "namespace": "team-a"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"x": "x" * length},
    }


def kept(client: RestClient, name: str, decode: Decode) -> object:
    return client.get(CONFIG_MAPS, name, namespace="team-a", decode=decode)


@pytest.mark.parametrize(("name", "length"), [("small", 10), ("large", SMALL_BYTES)])
def test_what_the_decoder_makes_is_returned(name: str, length: int) -> None:
    with served(a_cluster()) as client:
        assert kept(client, name, lambda data: {"x": data.count(b"x" * length)}) == {"x": 1}
        with pytest.raises(NotFoundError):
            kept(client, "none", decode_object)


def test_what_is_no_object_is_no_answer() -> None:
    with served(a_cluster()) as client, pytest.raises(UnavailableError, match="cannot be read"):
        kept(client, "small", lambda data: decode_object(data[1:]))


def test_four_large_objects_are_read_at_a_time_and_small_ones_beside_them() -> None:
    began, goes_on = threading.Semaphore(0), threading.Event()

    def wait(data: bytes) -> Object:
        began.release()
        goes_on.wait(30)
        return decode_object(data)

    with served(a_cluster()) as client, ThreadPoolExecutor(8) as threads:
        reads = [threads.submit(kept, client, "large", wait) for _ in range(6)]
        for _ in range(4):
            assert began.acquire(timeout=30)
        assert not began.acquire(timeout=0.3)
        assert kept(client, "small", decode_object)
        goes_on.set()
        assert all(one.result(30) for one in reads)
