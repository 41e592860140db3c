"""Grants of namespaces that are being deleted, and whose ledger went first.

The API server lets no other ledger be made there, and a finalizer of a tenant can keep such a
namespace for good. Nothing is admitted in it any more: each admission is a write of its ledger, and
no pod can be created or bound. Once what was reserved in the former ledger is over, a count of its
pods has all that they take, as it has for a ledger that is made anew. So it is granted by force
what is counted, without a ledger, and the others do not wait for it. What its pods give back, and
its headroom, is lowered, as it has no ledger at a version of the quota (`escrow`).

Should a ledger of that name count the quota after all, of a namespace that is made anew, the quota
is marked incomplete before, as ever (`grant_transaction`).
"""

from __future__ import annotations

import time

from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.shared.completeness import Count
from webhook.controllers.shared.leaving import WAIT_SECONDS
from webhook.controllers.shared.shared_context import SharedQuotaContext
from webhook.quota.amounts.resources import is_within, mask
from webhook.quota.ledger.ledger import Account, Ledger
from webhook.quota.shared.escrow import Raise, Shared, is_counted_as, lowered, need, shared_names


def is_all_granted(shared: SharedQuotaContext, namespace: str, count: Ledger) -> bool:
    """Return whether a namespace holds what is counted in it and no more, as far as is known."""
    return all(
        version is not None
        and version.shared is not None
        and version.grants.observed == count.accounts[name].observed
        and _is_granted(namespace, count.accounts[name], version.shared)
        for name in shared_names(count)
        for version in [shared.store.known(name)]
    )


def grant_counted(
    shared: SharedQuotaContext, namespace: str, state: NamespaceState, count: Ledger, epoch: int
) -> None:
    """Let a namespace without a ledger hold what is counted, and note that it is counted.

    Args:
        state: What was counted.
        count: The ledger that it would have. Nothing is on its way that was admitted before, and
            the pods have been listed since.
        epoch: The leadership to write under.

    Raises:
        NotLeadingError: It is over.
        ApiError: The API server does not do it.
        InvalidFieldError: Not even the identity of a quota can be read.
    """
    for name in shared_names(count):
        account = count.accounts[name]
        with shared.store.locked([name], until=time.monotonic() + WAIT_SECONDS) as is_held:
            version = shared.store.fetch(name) if is_held else None
            found = None if version is None else version.shared
            if version is None or found is None or not is_counted_as(account, found):
                continue
            if not _is_granted(namespace, account, found):
                if shared.ledgers.fetch(namespace) is not None:
                    continue
                following = lowered(version.grants, namespace, Raise(need(account)))
                version = shared.write(version, following, epoch)
            counted = Count(state, "", count.guard_uid)
            shared.completeness.record_counted(namespace, counted, account.observed, version, epoch)


def _is_granted(namespace: str, account: Account, shared: Shared) -> bool:
    held, wanted = shared.grants.namespaces.get(namespace), need(account)
    return held is not None and is_within(wanted, held) and is_within(mask(held, wanted), wanted)
