"""Memory that is free between what lives on goes back to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace, eventually
from tests.builders import a_quota
from tests.quota.cluster_quotas import a_cluster_quota
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES, RESOURCE_QUOTAS
from webhook.runtime import Engine, EngineOptions, engine
from webhook.state.quota_cache import QuotaCache
from webhook.telemetry.metrics import Metrics

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


@pytest.mark.skipif(not HAS_TRIM, reason="the C library returns memory in its own way")
def test_free_pages_between_blocks_are_given_back() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, after = map(int, result.stdout.split())
    assert after < before * 0.7


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
