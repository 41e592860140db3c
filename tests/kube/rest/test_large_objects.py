"""Objects of which a part is kept: few large ones are read at a time, small ones beside them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.builders import Object
from tests.kube.rest.served import served
from webhook.fakecluster.rest.apiserver import ApiServer
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import (
    CONFIG_MAPS,
    Decode,
    NotFoundError,
    RequestTimeoutError,
    UnavailableError,
)
from webhook.kube.codec import decode_object
from webhook.kube.rest import RestClient
from webhook.kube.rest.client import SMALL_BYTES

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


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


class Waiting:
    """A decoder that waits."""

    def __init__(self) -> None:
        self.began, self.goes_on = threading.Semaphore(0), threading.Event()

    def __call__(self, data: bytes) -> Object:
        self.began.release()
        self.goes_on.wait(30)
        return decode_object(data)


def test_four_large_objects_are_read_at_a_time_and_small_ones_beside_them() -> None:
    wait = Waiting()
    with served(a_cluster()) as client, ThreadPoolExecutor(8) as threads:
        reads = [threads.submit(kept, client, "large", wait) for _ in range(6)]
        for _ in range(4):
            assert wait.began.acquire(timeout=30)
        assert not wait.began.acquire(timeout=0.3)
        assert kept(client, "small", decode_object)
        wait.goes_on.set()
        assert all(one.result(30) for one in reads)


def test_who_gets_no_turn_in_time_has_no_answer() -> None:
    wait = Waiting()
    with served(a_cluster()) as plain, ThreadPoolExecutor(4) as threads:
        client = RestClient(plain.config, timeout_seconds=0.5)
        reads = [threads.submit(kept, client, "large", wait) for _ in range(4)]
        for _ in range(4):
            assert wait.began.acquire(timeout=30)
        with pytest.raises(UnavailableError, match="other large objects are being read"):
            kept(client, "large", decode_object)
        wait.goes_on.set()
        assert all(one.result(30) for one in reads)
        assert kept(client, "large", decode_object)


def test_a_large_object_has_one_deadline_for_everything() -> None:
    def slow(cluster: FakeCluster) -> WSGIApplication:
        answer = ApiServer(cluster)

        def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            time.sleep(0.7)
            return answer(environ, start)

        return app

    with served(a_cluster(), slow) as plain:
        client = RestClient(plain.config, timeout_seconds=1.0)
        assert kept(client, "small", decode_object)
        with pytest.raises(RequestTimeoutError):
            kept(client, "large", decode_object)
