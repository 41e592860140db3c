"""All kinds of faults, and how often each happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.torture.faults import connections, gates, ledgers, processes, quotas
from tests.torture.world import Incident, World

Act: TypeAlias = Callable[[World, random.Random, Incident], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        weight: How often, against the others.
        act: Does it, from beginning to end.
        seconds: How long it lasts at most, mending included.
        is_always: Every run has it that is long enough and has faults at all.
    """

    name: str
    weight: float
    act: Act
    seconds: float = 15.0
    is_always: bool = False


CATALOGUE: Final[tuple[Kind, ...]] = (
    Kind("webhook killed", 5, processes.kill_webhook),
    Kind("webhook asked to end", 2, processes.end_webhook, 35),
    Kind("webhook paused", 4, processes.pause_webhook),
    Kind(
        "webhook paused, others and leader killed",
        4,
        processes.pause_one_and_kill_the_others,
        25,
        is_always=True,
    ),
    Kind("controller killed", 6, processes.kill_controller),
    Kind("leader paused past its lease", 4, processes.pause_leader, 28),
    Kind("leader without network past its lease", 3, connections.hold_leader, 28),
    Kind("API server restarted", 4, processes.kill_apiserver, 25),
    Kind("etcd restarted", 2, processes.kill_etcd, 20),
    Kind("API server paused", 1.5, processes.pause_apiserver, 51),
    Kind("etcd paused", 1.5, processes.pause_etcd, 51),
    Kind("scheduler killed", 2, processes.kill_scheduler, 20),
    Kind("controller manager killed", 1, processes.kill_controller_manager, 20),
    Kind("watches cut", 6, connections.cut_watches, 1),
    Kind("watches stale", 7, connections.freeze_watches, 26),
    Kind("connections cut", 4, connections.cut_all, 3),
    Kind("answers dropped", 8, connections.drop_answers, 8),
    Kind("data delayed", 5, connections.delay, 13),
    Kind("network dead", 5, connections.hold),
    Kind("connections refused", 4, connections.refuse, 11),
    Kind("quota raised or lowered", 9, quotas.edit_hard, 20),
    Kind("quota selector edited", 4, quotas.edit_selector, 6),
    Kind("quota made anew with other scopes", 5, quotas.remake_quota, 15),
    Kind("quota taken away", 3, quotas.take_quota_away, 7),
    Kind("elastic quota edited", 6, quotas.edit_elastic_quota, 18),
    Kind("quota excluded and taken back", 3, quotas.exclude_quota, 11),
    Kind("ledger deleted by hand", 1.5, ledgers.delete_ledger, 46),
    Kind("ledger emptied by hand", 1, ledgers.empty_ledger, 46),
    Kind("ledger inflated by hand", 2, ledgers.inflate_ledger, 11),
    Kind("promise written by hand", 2, ledgers.promise_by_hand, 46),
    Kind("ledger garbled by hand", 1, ledgers.garble_ledger, 46),
    Kind("lease deleted or given away by hand", 2, ledgers.take_lease, 26),
    Kind("leader killed amid releases", 5, gates.kill_leader_amid_releases, 20),
    Kind("gating switched off and on", 4, gates.switch_gating, 21),
    Kind("namespace opted out and in", 4, gates.opt_out_and_in, 21),
    Kind("mask taken away and status written full", 3, ledgers.unmask, 6),
)
