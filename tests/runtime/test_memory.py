"""Memory that is free between what lives on goes back to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace, eventually
from tests.builders import a_quota
from tests.quota.cluster_quotas import a_cluster_quota
from tests.torture.version import HEAP
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES, RESOURCE_QUOTAS
from webhook.runtime import Engine, EngineOptions, engine
from webhook.state.quota_cache import QuotaCache
from webhook.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
HAS_TRIM = hasattr(ctypes.CDLL(None), "malloc_trim")
PROGRAM = """
from webhook.runtime.engine import trim_heap

def resident():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1])

texts = [str(number) * 300 for number in range(50_000)]
kept = texts[::40]
del texts
before = resident()
trim_heap()
print(before, resident())
"""

THREADS = """
import ctypes, threading

class Info(ctypes.Structure):  # struct mallinfo2
    _fields_ = [(str(number), ctypes.c_size_t) for number in range(10)]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info

def in_use():
    return getattr(libc.mallinfo2(), "7")

begun, ended = threading.Barrier(33), threading.Barrier(33)

def work():
    begun.wait()
    blocks = [b"x" * size for size in range(520, 1000) for _ in range(2)]
    del blocks
    ended.wait()
    begun.wait()

threads = [threading.Thread(target=work) for _ in range(32)]
for thread in threads:
    thread.start()
before = in_use()
begun.wait()
ended.wait()
print(in_use() - before)
begun.wait()
"""


@pytest.mark.skipif(not HAS_TRIM, reason="the C library returns memory in its own way")
def test_free_pages_between_blocks_are_given_back() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, after = map(int, result.stdout.split())
    assert after < before * 0.7


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="of glibc only")
def test_in_the_image_threads_keep_nothing_that_they_gave_back() -> None:
    result = subprocess.run(
        [sys.executable, "-c", THREADS],
        env=HEAP,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(result.stdout) < 1 << 20
    assert f"GLIBC_TUNABLES={HEAP['GLIBC_TUNABLES']}\n" in (ROOT / "Dockerfile").read_text()


def test_an_engine_gives_memory_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = threading.Semaphore(0)
    monkeypatch.setattr(engine, "trim_heap", trimmed.release)
    monkeypatch.setattr(engine, "_TRIM_SECONDS", 0.0)
    monkeypatch.setattr(engine, "_HOUSEKEEPING_SECONDS", 0.01)
    made = Engine(FakeClient(FakeCluster()), Metrics(), EngineOptions(controller=None))
    made.start()
    try:
        for _ in range(2):
            eventually(lambda: trimmed.acquire(blocking=False), "the heap is trimmed")
    finally:
        made.stop()


@pytest.mark.parametrize("is_shared", [False, True], ids=["own quotas", "shared quotas"])
def test_of_namespaces_that_went_a_webhook_keeps_no_quotas(
    monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    caches: list[QuotaCache] = []

    class Kept(QuotaCache):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            caches.append(self)

    monkeypatch.setattr(engine, "QuotaCache", Kept)
    cluster = FakeCluster()
    api = FakeClient(cluster)
    api.create(NAMESPACES, a_namespace("team-a"))
    if is_shared:
        api.create(CLUSTER_DEFERRED_QUOTAS, a_cluster_quota(selector={}))
    else:
        api.create(RESOURCE_QUOTAS, a_quota("p1", uid="", namespace="team-a"))
    made = Engine(api, Metrics(), EngineOptions(controller=None))
    made.start()
    try:
        (cache,) = caches
        eventually(lambda: bool(cache.up_to_date("team-a").deferred.quotas), "the quota is seen")
        assert len(cache) == 1
        if not is_shared:
            api.delete(RESOURCE_QUOTAS, "p1", namespace="team-a")
        api.delete(NAMESPACES, "team-a")
        eventually(lambda: not len(cache), "the namespace is forgotten")
    finally:
        made.stop()
