"""Headroom taken back by the leader at once, whatever else is to be written into the ledgers.

A reconciliation of a namespace gives headroom and takes it back as it goes (`grant_transaction`).
Where something may not be written before others have none, that is not waited for: a namespace
whose pods cannot be counted is not reconciled, and its ledger admits nevertheless.

It is a lowering as in `webhook.quota.shared.escrow`, of several namespaces with one write of the
quota.
"""

from __future__ import annotations

import logging
from typing import Final

from webhook.controllers.shared.shared_context import SharedQuotaContext
from webhook.kube.api import ConflictError, NotFoundError
from webhook.quota.shared.escrow import Shared, holding_only, is_counted_as, need, rewritten
from webhook.quota.shared.grants import Grants, with_headroom, with_lowered, with_recall

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 4
"""Races with handlers of one namespace; then others get their turn."""


def take_back(
    shared: SharedQuotaContext, name: str, epoch: int, *, but: str = "", is_recalled: bool
) -> bool:
    """Let namespaces hold no more of a quota than they need; the caller holds the quota's lock.

    Args:
        shared: The shared quotas of all.
        name: The quota, as in ledgers.
        epoch: The leadership to write under.
        but: A namespace that may keep what it has.
        is_recalled: No headroom is given for a while.

    Returns:
        Whether no other has any now.

    Raises:
        ApiError: The API server does not do it.
        InvalidFieldError: A ledger cannot be read.
        NotLeadingError: Another process may be writing.
    """
    version = shared.store.fetch(name)
    if version is None or version.shared is None:
        return False
    holders = sorted(version.grants.headroom.keys() - {but})
    following = with_recall(version.grants, is_recalled=is_recalled or version.grants.is_recalled)
    for namespace in holders:
        lowered = _lowered(shared, namespace, version.shared, following, epoch)
        if lowered is None:
            return False
        following = lowered
    if not holders:
        return True
    try:
        shared.write(version, following, epoch)
    except (ConflictError, NotFoundError):
        shared.store.fetch(name)
        return False
    _log.info("headroom taken back", extra={"quota": name})
    return True


def _lowered(
    context: SharedQuotaContext, namespace: str, shared: Shared, grants: Grants, epoch: int
) -> Grants | None:
    """Return grants in which a namespace has no headroom, once its ledger says so."""
    name = shared.quota.quota.name
    for _ in range(_ATTEMPTS):
        version = context.ledgers.fetch(namespace)
        ledger = None if version is None else version.ledger
        if version is None or ledger is None or name not in ledger.accounts:
            return with_headroom(grants, namespace, {})  # nothing is admitted by it
        account = ledger.accounts[name]
        following = rewritten(holding_only(ledger, name, need(account)))
        context.leadership.require(epoch)
        try:
            # also where nothing is unused: an earlier leader may be about to give some
            context.ledgers.write(namespace, version, following)
        except (ConflictError, NotFoundError):
            continue
        if is_counted_as(account, shared):
            grants = with_lowered(grants, namespace, need(account))
        return with_headroom(grants, namespace, {})
    return None
