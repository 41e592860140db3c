"""What a namespace may give away of a shared quota."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.ledger.ledger import (
    Account,
    Admitted,
    Claim,
    Denied,
    Ledger,
    ReservationSource,
    admit,
    exceeded_quotas,
)
from webhook.quota.shared.cluster_quotas import cluster_quota
from webhook.quota.shared.escrow import (
    Shared,
    beside,
    granting,
    growth,
    open_to,
    shared_names,
)
from webhook.quota.shared.grants import Grants

CPU = "requests.cpu"


def cpu(amount: str) -> ResourceList:
    return {CPU: Quantity.parse(amount)}


QUOTA = cluster_quota(
    {
        "metadata": {"name": "both", "uid": "u"},
        "spec": {"namespaceSelector": {}, "hard": {CPU: "10"}},
    }
)
(DEFERRED,) = deferred_quotas([QUOTA.quota], {CPU}).quotas
NAME = DEFERRED.name


def a_ledger(used: str = "1", granted: str = "1") -> Ledger:
    account = Account(DEFERRED.observed, cpu("10"), cpu(used), granted=cpu(granted))
    return Ledger({NAME: account}, {})


def shared(**namespaces: str) -> Shared:
    held = {name: cpu(amount) for name, amount in namespaces.items()}
    return Shared(QUOTA, Grants(held, DEFERRED.observed))


def claim(amount: str) -> Claim:
    return Claim("uid", "web", ReservationSource.BIND, cpu(amount), (NAME,))


@pytest.mark.parametrize(("asked", "fits"), [("5", True), ("6", False)])
def test_what_others_hold_is_taken(asked: str, *, fits: bool) -> None:
    ledger = beside(a_ledger(), "a", {NAME: shared(a="1", b="4")})
    _, verdict = admit(ledger, claim(asked))
    assert isinstance(verdict, Admitted) is fits
    assert bool(exceeded_quotas(ledger, claim(asked))) is not fits
    if isinstance(verdict, Denied):
        assert verdict.denial.used == cpu("5")  # its own and theirs


def test_only_what_is_added_beyond_what_is_held_has_to_be_granted() -> None:
    known = a_ledger(used="1", granted="3")
    within, _ = admit(known, claim("2"))
    assert growth(known, within, [NAME]) == {}
    beyond, _ = admit(known, claim("3"))
    assert growth(known, beyond, [NAME]) == {NAME: cpu("4")}
    assert granting(beyond, {NAME: cpu("4")}).accounts[NAME].granted == cpu("4")


def test_what_was_too_much_before_is_not_granted_for_who_adds_nothing() -> None:
    known = a_ledger(used="5", granted="1")
    following = replace(known, sequence=9)
    assert growth(known, following, [NAME]) == {}


def test_a_quota_is_open_to_those_who_take_part_once_all_are_counted() -> None:
    account = a_ledger().accounts[NAME]
    complete = shared(a="1")
    assert open_to("a", account, complete)
    assert not open_to("b", account, complete)
    assert not open_to("a", account, None)
    counting = replace(complete, grants=replace(complete.grants, observed=None))
    assert not open_to("a", account, counting)
    former = replace(DEFERRED.observed, spec_hash="former")
    assert not open_to("a", replace(account, observed=former), complete)
    recreated = replace(QUOTA, quota=replace(QUOTA.quota, uid="other"))
    assert not open_to("a", account, replace(complete, quota=recreated))


def test_a_quota_is_open_only_to_those_who_count_terminating_pods_as_all_others() -> None:
    held = deferred_quotas([QUOTA.quota], {CPU}, holds_terminating=True).quotas[0].observed
    account = replace(a_ledger().accounts[NAME], observed=held)
    released = shared(a="1")
    assert not open_to("a", account, released)
    assert open_to("a", account, replace(released, grants=replace(released.grants, observed=held)))


def test_only_shared_quotas_are_looked_up() -> None:
    ledger = a_ledger()
    account = replace(ledger.accounts[NAME], observed=replace(DEFERRED.observed, name="p1"))
    both = replace(ledger, accounts={**ledger.accounts, "p1": account})
    assert shared_names(both) == (NAME,)
    assert shared_names(None) == ()
