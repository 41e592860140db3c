"""Who uses more of the pool of elastic quotas than their min, as a handler knows it.

The spec of the quota that charges a pool says up to what its namespaces may have headroom: the min
of their elastic quota (`elastic.derived_quotas`). Without that, min is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from webhook.quota.amounts.resources import ResourceList, add, mask
from webhook.quota.ledger.ledger_values import EMPTY, excess
from webhook.quota.shared.escrow import Shared

_NAMED: Final = 4
"""Namespaces of one quota that are named."""


def borrowers(shared: Shared, resources: Collection[str]) -> Iterator[tuple[str, ResourceList]]:
    """Yield namespaces of one elastic quota and what they use above its min.

    Args:
        shared: The quota that charges a pool.
        resources: The quota keys that are asked about.
    """
    if not shared.quota.headroom:
        return
    parts = [(sorted(one.namespaces), one.amounts) for one in shared.quota.headroom]
    in_use = shared.grants.in_use
    guaranteed = {name for names, _ in parts for name in names}
    alone = [([name], EMPTY) for name in in_use if name not in guaranteed]
    for names, least in sorted([*parts, *alone], key=lambda one: one[0]):
        used: ResourceList = EMPTY
        for name in names:
            used = add(used, in_use.get(name, EMPTY))
        above = excess(mask(used, resources), least)
        if above:
            yield _text(names), above


def _text(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join([*names[:_NAMED], *([f"and {more} more"] if more > 0 else [])])
