"""Two namespaces that share a quota, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import ControllerHarness, new_harness
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES

OTHER = "team-b"
NAME = "cdq/both"
HIGH = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
TEAM = {"matchLabels": {"team": "x"}}


def shared_quota(cpu: str = "4", name: str = "both", **spec: object) -> dict[str, object]:
    """A quota that all namespaces share."""
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": cpu}, **spec},
    }


@contextmanager
def sharing(*objects: Mapping[str, object]) -> Iterator[ControllerHarness]:
    """Two namespaces that share 4 cpu, counted; other objects are there from the beginning."""
    with new_harness(a_namespace(OTHER), *objects, shared_quota(), follows_ledgers=True) as made:
        steps(made)
        yield made


def status_of(harness: ControllerHarness, name: str = "both") -> Mapping[str, object]:
    found = harness.api.get(CLUSTER_DEFERRED_QUOTAS, name).get("status")
    return cast("Mapping[str, object]", found or {})


def granted(harness: ControllerHarness, name: str = "both") -> dict[str, str]:
    """What each namespace holds."""
    listing = cast(
        "list[Mapping[str, Mapping[str, str]]]", status_of(harness, name).get("namespaces")
    )
    return {str(one["name"]): one["granted"].get("requests.cpu", "0") for one in listing or []}


def is_complete(harness: ControllerHarness, name: str = "both") -> bool:
    """Whether the quota says that all who take part are counted."""
    found = harness.api.get(CLUSTER_DEFERRED_QUOTAS, name)
    observed = cast("Mapping[str, str]", status_of(harness, name).get("observed") or {})
    metadata = cast("Mapping[str, str]", found["metadata"])
    account = harness.ledger().accounts.get(f"cdq/{name}")
    return (
        account is not None
        and observed.get("uid") == metadata["uid"]
        and observed.get("specHash") == account.observed.spec_hash
    )


def steps(harness: ControllerHarness, number: int = 4) -> None:
    """Let the controller settle until all is said."""
    for _ in range(number):
        harness.pass_time(1.5)
        harness.step()


def settle(harness: ControllerHarness, namespace: str) -> None:
    """Settle one namespace; the others are busy."""
    harness.pass_time(1.5)
    harness.mark_dirty(namespace)
    harness.controller.poll()
    queue = harness.controller.workers.queue
    for _ in range(queue.ready_count()):
        one = queue.get()
        assert one is not None
        if one == namespace:
            harness.controller.workers.process(one)
        else:
            queue.add(one)
            queue.done(one)


def label(harness: ControllerHarness, namespace: str, **labels: str | None) -> None:
    wanted = {"team": "x", **labels}
    harness.api.patch(NAMESPACES, namespace, {"metadata": {"labels": wanted}})
