"""Quotas that namespaces share, as the tracker keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.admission.doors.desk import a_namespace
from tests.controllers.rig import NAMESPACE, Rig, a_rig
from webhook.cluster.api import (
    CLUSTER_DEFERRED_QUOTAS,
)
from webhook.quota.refusals import QuotaExceeded
from webhook.quota.resources import to_text
from webhook.state.names import GATE
from webhook.state.reserver import Reserved

OTHER = "team-b"
NAME = "cdq/both"
GATED = {"gates": [GATE]}


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


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Two namespaces that share 4 cpu, counted."""
    with a_rig(a_namespace(OTHER), shared_quota(), follows=True) as made:
        steps(made)
        yield made


def test_it_is_an_account_in_the_ledger_of_each(rig: Rig) -> None:
    assert set(rig.ledger().accounts) == {NAME}
    assert set(rig.ledger(OTHER).accounts) == {NAME}
    assert granted(rig) == {NAMESPACE: "0", OTHER: "0"}
    assert is_complete(rig)


def test_what_one_takes_the_other_has_not(rig: Rig) -> None:
    rig.pod("one", "3")
    rig.pod("other", "2", OTHER)
    assert isinstance(rig.reserve("one"), Reserved)
    assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
    refusal = rig.reserve("other", OTHER)
    assert isinstance(refusal, QuotaExceeded)
    assert refusal.message == (
        "exceeded quota: cdq/both, requested: requests.cpu=2, used: requests.cpu=3, "
        "limited: requests.cpu=4"
    )
    rig.bind("one")
    steps(rig)
    assert rig.used(NAME) == {"requests.cpu": "3"}
    assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
    assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)
    rig.finish("one")
    rig.step()
    assert granted(rig) == {NAMESPACE: "0", OTHER: "0"}
    assert isinstance(rig.reserve("other", OTHER), Reserved)
    assert granted(rig) == {NAMESPACE: "0", OTHER: "2"}
    assert to_text(rig.ledger(OTHER).accounts[NAME].granted) == {"requests.cpu": "2"}
