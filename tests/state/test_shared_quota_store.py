"""What a process keeps of shared quotas."""

from __future__ import annotations

import tracemalloc
from typing import cast

from webhook.kube.api import ClusterApi, NotFoundError
from webhook.state.shared_quotas import SharedQuotaStore


class _Empty:
    """An API server without objects."""

    def get(self, _kind: object, name: str, **_: object) -> object:
        raise NotFoundError(name)


def test_nothing_is_kept_of_quotas_that_come_and_go() -> None:
    """Of an elastic quota one is derived, by its name: people choose it, and choose it anew."""
    store = SharedQuotaStore(cast("ClusterApi", _Empty()))

    def use(first: int) -> None:
        for number in range(first, first + 2000):
            name = f"cdq/eq.team-a.{number}"
            assert store.fetch_together(name) is None
            with store.locked([name], until=0.0) as is_locked:
                assert is_locked

    tracemalloc.start()
    try:
        use(0)
        before, _ = tracemalloc.get_traced_memory()
        use(2000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50_000
