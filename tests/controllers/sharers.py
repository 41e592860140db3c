"""Two namespaces that share a quota, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tests.controllers.rig import Rig
from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES

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


def status_of(rig: Rig, name: str = "both") -> Mapping[str, object]:
    found = rig.api.get(CLUSTER_DEFERRED_QUOTAS, name).get("status")
    return cast("Mapping[str, object]", found or {})


def granted(rig: Rig, name: str = "both") -> dict[str, str]:
    """What each namespace holds."""
    listed = cast("list[Mapping[str, Mapping[str, str]]]", status_of(rig, name).get("namespaces"))
    return {str(one["name"]): one["granted"].get("requests.cpu", "0") for one in listed or []}


def is_complete(rig: Rig, name: str = "both") -> bool:
    """Whether the quota says that all who take part are counted."""
    found = rig.api.get(CLUSTER_DEFERRED_QUOTAS, name)
    observed = cast("Mapping[str, str]", status_of(rig, name).get("observed") or {})
    metadata = cast("Mapping[str, str]", found["metadata"])
    account = rig.ledger().accounts.get(f"cdq/{name}")
    return (
        account is not None
        and observed.get("uid") == metadata["uid"]
        and observed.get("specHash") == account.observed.spec_hash
    )


def steps(rig: Rig, number: int = 4) -> None:
    """Let the tracker settle until all is said."""
    for _ in range(number):
        rig.pass_time(1.5)
        rig.step()


def settle(rig: Rig, namespace: str) -> None:
    """Settle one namespace; the others are busy."""
    rig.pass_time(1.5)
    rig.poke(namespace)
    tracker = rig.tracker
    tracker._terms.notice()
    for _ in range(tracker._agenda.due()):
        one = tracker._agenda.take(0)
        if one == namespace:
            tracker._reconciler.reconcile(one)
        elif one is not None:
            tracker._agenda.done(one, again=rig.clock[0], not_before=0.0)


def label(rig: Rig, namespace: str, **labels: str | None) -> None:
    wanted = {"team": "x", **labels}
    rig.api.patch(NAMESPACES, namespace, {"metadata": {"labels": wanted}})
