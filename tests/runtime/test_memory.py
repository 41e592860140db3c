"""Memory that is free between what lives on goes back to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading

import pytest

from tests.admission.handlers.harness import eventually
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.runtime import Engine, EngineOptions, engine
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
