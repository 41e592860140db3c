"""The doors' way to quotas that namespaces share: look them up, raise what a namespace holds.

The order of reads and writes, and why nothing can be given twice, is in `webhook.quota.escrow`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from webhook.cluster.api import ApiError, ConflictError, NotFoundError
from webhook.quota.escrow import Shared, beside, granting, growth, open_to
from webhook.quota.fields import InvalidFieldError
from webhook.quota.grants import raised
from webhook.quota.ledger import Claim, Ledger, Undecided
from webhook.state.shared_quotas import SharedQuotaStore, SharedSeen

_log = logging.getLogger(__name__)

SharedMap: TypeAlias = Mapping[str, SharedSeen]
"""Name in ledgers → the quota as it was looked up."""

NOTHING_SHARED: Final[SharedMap] = {}


def look_up(store: SharedQuotaStore, names: Iterable[str], *, is_fresh: bool) -> SharedMap:
    """Look shared quotas up, as they are now or as they were last known."""
    return {name: _look_up(store, name, is_fresh=is_fresh) for name in names}


def _look_up(store: SharedQuotaStore, name: str, *, is_fresh: bool) -> SharedSeen:
    known = None if is_fresh or store.is_contended(name) else store.known(name)
    try:
        version = known or store.fetch(name)
    except ApiError as err:
        return SharedSeen(None, f"quota {name} cannot be reached: {err.message}")
    except InvalidFieldError as err:
        return SharedSeen(None, f"quota {name} cannot be read: {err}")
    if version is not None and version.shared is None:
        return SharedSeen(version, f"quota {name} cannot be read: {version.fault}")
    return SharedSeen(version)


def shared_of(seen: SharedMap) -> dict[str, Shared | None]:
    """Return what the quotas say."""
    return {name: one.shared for name, one in seen.items()}


def with_others(ledger: Ledger, namespace: str, seen: SharedMap) -> Ledger:
    """Return a ledger with what other namespaces hold, to be decided by."""
    return beside(ledger, namespace, shared_of(seen)) if seen else ledger


def closed(namespace: str, ledger: Ledger, seen: SharedMap) -> dict[str, Undecided]:
    """Return the shared quotas of which nothing more may be granted now, and why."""
    found: dict[str, Undecided] = {}
    for name, one in seen.items():
        if not open_to(namespace, ledger.accounts[name], one.shared):
            found[name] = Undecided(one.fault or f"usage is being counted for quota: {name}")
    return found


def reason_of(claim: Claim, ledger: Ledger, shut: Mapping[str, Undecided]) -> Undecided | None:
    """Say why a claim cannot be decided because of a shared quota that it concerns."""
    if not shut:
        return None
    before = ledger.reservations.get(claim.uid)
    names = (*claim.quotas, *(() if before is None else before.quotas))
    return next((shut[name] for name in names if name in shut), None)


def raise_grants(
    store: SharedQuotaStore, namespace: str, before: Ledger, following: Ledger, seen: SharedMap
) -> Ledger | None:
    """Let the namespace hold what `following` needs; None when that cannot be had now.

    Every quota is written in the place of the version that was decided by, in the order of the
    names. What was written before one fails stays granted: too much, until the leader lowers it.

    Args:
        store: Where the quotas are written.
        namespace: The namespace.
        before: The ledger that was decided on; its version was read before the quotas are written.
        following: The ledger that is to replace it.
        seen: The quotas that were decided by.

    Returns:
        The ledger to write.
    """
    wanted = growth(before, following, sorted(seen))
    for name, amounts in wanted.items():
        version = seen[name].version
        if version is None or version.shared is None:
            return None
        try:
            store.write(version, raised(version.shared.grants, namespace, amounts))
        except (ConflictError, NotFoundError):
            return None
        except ApiError as err:
            _log.warning(
                "writing a shared quota failed",
                extra={"quota": name, "code": err.code, "error": err.message},
            )
            return None
    return granting(following, wanted) if wanted else following
