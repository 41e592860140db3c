"""Claims on shared quotas: look the quotas up, and raise the grants of a namespace.

The order of reads and writes, and why nothing can be given twice, is in
`webhook.quota.shared.escrow`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError, ConflictError, NotFoundError
from webhook.quota.ledger.ledger import Claim, Ledger, Undecided
from webhook.quota.shared.escrow import Shared, beside, granting, growth, open_to
from webhook.quota.shared.grants import with_raised
from webhook.state.shared_quotas import SharedQuotaLookup, SharedQuotaStore

_log = logging.getLogger(__name__)

SharedLookups: TypeAlias = Mapping[str, SharedQuotaLookup]
"""Name in ledgers → the quota as it was looked up."""

NO_SHARED_QUOTAS: Final[SharedLookups] = {}


def look_up(store: SharedQuotaStore, names: Iterable[str], *, is_fresh: bool) -> SharedLookups:
    """Look shared quotas up, as they are now or as they were last known."""
    return {name: _look_up(store, name, is_fresh=is_fresh) for name in names}


def _look_up(store: SharedQuotaStore, name: str, *, is_fresh: bool) -> SharedQuotaLookup:
    known = None if is_fresh or store.is_contended(name) else store.known(name)
    try:
        version = known or store.fetch(name)
    except ApiError as err:
        return SharedQuotaLookup(None, f"quota {name} cannot be reached: {err.message}")
    except InvalidFieldError as err:
        return SharedQuotaLookup(None, f"quota {name} cannot be read: {err}")
    if version is not None and version.shared is None:
        return SharedQuotaLookup(version, f"quota {name} cannot be read: {version.error}")
    return SharedQuotaLookup(version)


def shared_of(lookups: SharedLookups) -> dict[str, Shared | None]:
    """Return what the quotas say."""
    return {name: one.shared for name, one in lookups.items()}


def with_other_namespaces(ledger: Ledger, namespace: str, lookups: SharedLookups) -> Ledger:
    """Return a ledger with what other namespaces hold, to be decided by."""
    return beside(ledger, namespace, shared_of(lookups)) if lookups else ledger


def unavailable(namespace: str, ledger: Ledger, lookups: SharedLookups) -> dict[str, Undecided]:
    """Return the shared quotas of which nothing more may be granted now, and why."""
    found: dict[str, Undecided] = {}
    for name, one in lookups.items():
        if not open_to(namespace, ledger.accounts[name], one.shared):
            found[name] = Undecided(one.error or f"usage is being counted for quota: {name}")
    return found


def blocking_reason(
    claim: Claim, ledger: Ledger, unavailable_quotas: Mapping[str, Undecided]
) -> Undecided | None:
    """Return why a claim cannot be decided because of a shared quota that it concerns."""
    if not unavailable_quotas:
        return None
    before = ledger.reservations.get(claim.uid)
    names = (*claim.quotas, *(() if before is None else before.quotas))
    return next((unavailable_quotas[name] for name in names if name in unavailable_quotas), None)


def raise_grants(
    store: SharedQuotaStore,
    namespace: str,
    before: Ledger,
    following: Ledger,
    lookups: SharedLookups,
) -> Ledger | None:
    """Let the namespace hold what `following` needs; None when that cannot be had now.

    Every quota is written in the place of the version that was decided by, in the order of the
    names. What was written before one fails stays granted: too much, until the leader lowers it.

    Args:
        store: Where the quotas are written.
        before: The ledger that was decided on; its version was read before the quotas are written.
        following: The ledger that is to replace it.
        lookups: The quotas that were decided by.

    Returns:
        The ledger to write.
    """
    wanted = growth(before, following, sorted(lookups))
    for name, amounts in wanted.items():
        version = lookups[name].version
        if version is None or version.shared is None:
            return None
        try:
            store.write(version, with_raised(version.shared.grants, namespace, amounts))
        except (ConflictError, NotFoundError):
            return None
        except ApiError as err:
            _log.warning(
                "writing a shared quota failed",
                extra={"quota": name, "code": err.code, "error": err.message},
            )
            return None
    return granting(following, wanted) if wanted else following
