"""Objects and helpers for tests of the cluster port."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import count, islice

from webhook.fakecluster.storage import FakeCluster
from webhook.fakecluster.storage.admission_hook import Operation, WriteRequest
from webhook.kube.api import PODS, Kind, Object, WatchEvent

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
_SOMETHING: Object = {"metadata": {"name": "web-1"}}


def a_config_map(
    name: str = "notes",
    *,
    namespace: str = "team-a",
    metadata: Mapping[str, object] | None = None,
    **data: str,
) -> dict[str, object]:
    """A ConfigMap: an object without rules of its own."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "data": data,
    }


def a_ledger(
    *, namespace: str = "team-a", version: int | None = None, status: object = None
) -> dict[str, object]:
    """A QuotaLedger: a custom resource with a status."""
    metadata: dict[str, object] = {"name": "ledger", "namespace": namespace}
    if version is not None:
        metadata["resourceVersion"] = str(version)
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "QuotaLedger",
        "metadata": metadata,
        "spec": {},
        **({} if status is None else {"status": status}),
    }


def a_write(
    operation: Operation = "CREATE",
    kind: Kind = PODS,
    new: Object | None = _SOMETHING,
    old: Object | None = None,
    *,
    subresource: str = "",
    namespace: str = "team-a",
) -> WriteRequest:
    """A write as whoever intercepts it sees it."""
    return WriteRequest(
        operation=operation,
        resource=kind,
        kind=kind,
        subresource=subresource,
        namespace=namespace,
        name="web-1",
        new=new,
        old=old,
        dry_run=False,
        options={},
    )


def a_cluster(
    *,
    require_namespaces: bool = False,
    history_limit: int = 4096,
    seed: int = 0,
    qos: Callable[[Object], str] = lambda pod: "",  # noqa: ARG005 - pods have no class
) -> FakeCluster:
    """A cluster whose clock stands still and whose uids count up."""
    numbers = count(1)
    return FakeCluster(
        clock=lambda: NOW,
        new_uid=lambda: f"uid-{next(numbers)}",
        names=random.Random(seed),  # noqa: S311 - names, not secrets
        qos=qos,
        require_namespaces=require_namespaces,
        history_limit=history_limit,
    )


def meta(obj: Object) -> dict[str, object]:
    """The metadata of an object."""
    return mapping(obj, "metadata")


def mapping(obj: object, *path: str) -> dict[str, object]:
    """A mapping inside an object."""
    for name in path:
        assert isinstance(obj, Mapping)
        obj = obj[name]
    assert isinstance(obj, dict)
    return obj


def entries(obj: object, *path: str) -> list[object]:
    """A list inside an object."""
    found = mapping(obj, *path[:-1])[path[-1]]
    assert isinstance(found, list)
    return found


def names(objects: Iterable[Object]) -> list[object]:
    """The names of some objects."""
    return [meta(obj)["name"] for obj in objects]


def first(events: Iterable[WatchEvent], number: int) -> list[WatchEvent]:
    """The first events of a watch; fewer if it ends before."""
    return list(islice(events, number))


def lines(events: Iterable[WatchEvent]) -> list[tuple[str, str]]:
    """What some events say: their types and keys."""
    return [(event.type, event.key) for event in events]
