"""Pods without a gate that may be tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_pod, a_quota
from tests.quota.queue.queue_criteria import GATE, ledger_of, terms_of
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.ledger import Admitted, Ledger, ReservationSource, admit
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import to_queued_pod
from webhook.quota.queue.requeue import fitting_pods

POOL = "cdq/epool.default"
TERMS = terms_of(a_quota(POOL, hard={"requests.cpu": "4"}))


def cpu(amount: str) -> ResourceList:
    return {"requests.cpu": Quantity.parse(amount)}


def promised_beyond(ledger: Ledger, amount: str) -> Ledger:
    """Return a ledger beside a promise of a pool to a pod elsewhere."""
    account = ledger.accounts[POOL]
    beside = replace(account, used_elsewhere=cpu(amount), unheld=cpu(amount))
    return replace(ledger, accounts={POOL: beside})


@pytest.mark.parametrize("is_released", [True, False])
def test_a_released_pod_fits_whatever_was_promised_since(*, is_released: bool) -> None:
    raw = a_pod(name="web", uid="uid-web", requests={"cpu": "2"})
    waiter = to_queued_pod(Pod.from_object(raw), GATE, since=1, terms=TERMS)
    ledger = ledger_of(TERMS)
    assert waiter.claim is not None
    if is_released:
        ledger, _ = admit(ledger, waiter.claim)
    full = promised_beyond(ledger, "4")
    bind = replace(waiter.claim, source=ReservationSource.BIND)
    assert isinstance(admit(full, bind)[1], Admitted) is is_released
    found = fitting_pods(full, [waiter], TERMS.rules, promised=(), holders={}, room=9)
    assert [one.uid for one in found] == ["uid-web"] * is_released
