"""What has to hold in the world; the pods in storage are what is true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.quota.ledger_world.objects import (
    CPU,
    HELD,
    PodState,
    QuotaState,
    Request,
    number,
    observed,
)
from tests.quota.ledger_world.storage import Storage
from webhook.quota.amounts.resources import excess
from webhook.quota.ledger.ledger import Admitted, Ledger, Verdict, reserved_by
from webhook.quota.queue.queued_pods import QueuedPod


def taken(storage: Storage, quota: QuotaState, resource: str, *, holds: bool) -> int:
    """What assigned, live pods really take of a quota, stuck ones only if they are held."""
    return _sum(_charged(storage, holds=holds), quota, resource)


def admitted(storage: Storage, quota: QuotaState, resource: str, *, holds: bool) -> int:
    """What those of them take that could have been refused."""
    pods = _charged(storage, holds=holds)
    return _sum([pod for pod in pods if not pod.is_mirror], quota, resource)


def _charged(storage: Storage, *, holds: bool) -> list[PodState]:
    pods = storage.pods.values()
    return [pod for pod in pods if pod.is_assigned and pod.counts(holds=holds)]


def _sum(pods: Iterable[PodState], quota: QuotaState, resource: str) -> int:
    return sum(pod.cpu if resource == CPU else pod.memory for pod in pods if quota.applies_to(pod))


def check_laws(storage: Storage) -> None:
    """Check what holds at every moment, for every quota counted as it is now (law 1)."""
    _, known = storage.read_ledger()
    if known is None:
        return
    quotas = storage.quotas()
    sums = reserved_by(known.reservations.values())
    for one in known.reservations.values():
        for charge in one.charges.values():
            assert not excess(charge, one.usage), f"{one.pod} is charged twice"
    for name, account in known.accounts.items():
        holds = account.observed.spec_hash.endswith(HELD)
        is_current = (
            name in quotas
            and quotas[name].observed(account.hard.keys(), holds=holds) == account.observed
        )
        for resource in account.hard:
            reserved = number(account.reserved, resource)
            assert reserved == number(sums.get(name, {}), resource), (
                f"{name}: reserved is not the sum of the reservations"
            )
            if is_current:
                held = number(account.used, resource) + reserved
                real = taken(storage, quotas[name], resource, holds=holds)
                # a full quota admits nothing more, whatever is missing beyond it
                real = min(real, number(account.hard, resource))
                assert held >= real, f"{name}: {real} {resource} taken, {held} in the ledger"
                check_evidence(storage, known, name, resource)


def check_evidence(storage: Storage, known: Ledger, quota: str, resource: str) -> None:
    """Check that pods that were never stored hold no more than there is (law 10)."""
    stored = {pod.uid for pod in storage.pod_history}
    charges = [
        number(one.charges.get(quota, {}), resource)
        for uid, one in known.reservations.items()
        if uid not in stored and not uid.startswith("nobody-")
    ]
    hard = storage.quotas()[quota].hard(storage.keys | {resource})
    assert sum(charges) <= number(hard, resource), f"{quota}: more is promised than there is"


def check_within_hard(known: Ledger, following: Ledger) -> None:
    """Check that a decision adds nothing beyond a limit, whatever was asked (laws 2 and 10)."""
    for name, account in following.accounts.items():
        before = known.accounts[name]
        for resource, hard in account.hard.items():
            reserved = number(account.reserved, resource)
            held = number(account.used, resource) + reserved
            is_more = reserved > number(before.reserved, resource)
            assert not is_more or held <= hard.value, f"{name}: {held} held of {hard.value}"


def check_commit(
    storage: Storage, request: Request, before: PodState | None, after: PodState
) -> None:
    """Check that nothing grew beyond a quota that is as it was when it was admitted (law 2)."""
    if not after.is_assigned or after.is_mirror:
        return
    if storage.recounted_at > request.admitted_at:
        return  # what was admitted since claimed for other resources, or beside other pods
    for quota in storage.quotas().values():
        known = quota.observed(request.keys, holds=request.holds)
        if known not in request.observed or not quota.applies_to(after):
            continue
        was_counted = before is not None and before.is_assigned and quota.applies_to(before)
        for resource, hard in quota.hard(request.keys).items():
            grown = number(after.usage, resource)
            if was_counted and before is not None:
                grown -= number(before.usage, resource)
            real = admitted(storage, quota, resource, holds=request.holds)
            assert grown <= 0 or real <= hard.value, (
                f"over-commit of {quota.name}: {real} {resource} of {hard.value}"
            )


def check_refused_untouched(
    known: Ledger, following: Ledger, batch: Sequence[Request], verdicts: Sequence[Verdict]
) -> None:
    """Check that a refused pod holds after the decision what it held before it (law 7)."""
    uids = [one.claim.uid for one in batch]
    decided = zip(uids, verdicts, strict=True)
    admitted = {uid for uid, verdict in decided if isinstance(verdict, Admitted)}
    for uid in uids:
        is_unchanged = following.reservations.get(uid) == known.reservations.get(uid)
        assert uid in admitted or is_unchanged, "a refused request left a charge"


def check_released(ledger: Ledger, released: Iterable[QueuedPod]) -> None:
    """Check that what is reserved for pods that waited fits beside all else (law 2)."""
    sums = reserved_by(ledger.reservations.values())
    for waiter in released:
        claim = waiter.claim
        assert claim is not None
        for name in claim.quotas:
            account = ledger.accounts[name]
            for resource, hard in account.hard.items():
                held = number(account.used, resource) + number(sums[name], resource)
                asks = number(claim.usage, resource)
                assert not asks or held <= hard.value, f"{claim.pod} was released beyond {name}"


def check_folded(storage: Storage) -> None:
    """Check, when all is counted, that nothing is both used and reserved (law 4)."""
    _, known = storage.read_ledger()
    assert known is not None
    for uid, one in known.reservations.items():
        pod = storage.pods.get(uid)
        assert pod is None or not pod.is_assigned or pod.version <= one.base_version, (
            f"{one.pod} is both used and reserved"
        )


def check_exact(storage: Storage) -> None:
    """Check, when nothing is on its way, that the ledger says what is true and no more."""
    _, known = storage.read_ledger()
    assert known is not None
    assert known.observed == observed(storage.quotas(), storage.keys, holds=storage.holds)
    for name, quota in storage.quotas().items():
        account = known.accounts[name]
        for resource in storage.keys:
            real = taken(storage, quota, resource, holds=storage.holds)
            assert number(account.used, resource) == real, name
            assert not number(account.reserved, resource), f"{name} still holds reservations"
