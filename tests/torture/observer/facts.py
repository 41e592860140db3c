"""What one revision says of one pod, quota or ledger, as small as the judge needs it.

Facts travel from the recorder to the judge as lines of JSON. `at` is the machine's monotonic
clock, which all processes of a machine share.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from tests.torture.observer.amounts import Amounts, read_amounts
from tests.torture.observer.usage import (
    DEFERRED_KEYS,
    ENDED_PHASES,
    Expression,
    Traits,
    expressions,
    pod_usage,
    traits_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFact:
    """A pod from this revision on.

    Attributes:
        is_assigned: Whether it has a node.
        is_live: Whether it is there and has not ended.
        released_at: When it ceases to be charged although it is still there, because it should
            long be gone.
        is_gated: Whether it waits behind the product's scheduling gate.
        is_let_through: Whether the product says that it needed none.
    """

    revision: int
    at: float
    namespace: str
    name: str
    uid: str
    is_assigned: bool = False
    is_live: bool = True
    released_at: float | None = None
    traits: Traits = field(default_factory=Traits)
    usage: Amounts = field(default_factory=dict)
    is_gated: bool = False
    is_let_through: bool = False

    def remains(self, at: float) -> bool:
        """Return whether it goes on being charged at a moment, if it has a node."""
        return self.is_live and not (self.released_at is not None and self.released_at <= at)

    def says_the_same_as(self, other: PodFact | None) -> bool:
        """Say whether nothing that matters differs."""
        if other is None or not _same_moment(self.released_at, other.released_at):
            return False
        return self == replace(
            other, revision=self.revision, at=self.at, released_at=self.released_at
        )


def _same_moment(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < 0.5  # computed anew from whole seconds each time


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFact:
    """A quota from this revision on.

    Attributes:
        hard: Its deferred keys in `spec.hard`; none if it is left to the API server.
        unmasked: Deferred keys that its status shows; none if the quota is left to the API server.
    """

    revision: int
    at: float
    namespace: str
    name: str
    uid: str
    is_there: bool = True
    hard: Amounts = field(default_factory=dict)
    conditions: tuple[Expression, ...] = ()
    unmasked: tuple[str, ...] = ()

    def selects(self, traits: Traits) -> bool:
        """Say whether the quota charges pods with these traits."""
        return self.is_there and all(each.selects(traits) for each in self.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a ledger says of one quota."""

    uid: str
    used: Amounts
    reserved: Amounts
    hard: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFact:
    """A namespace's ledger from this revision on; without accounts where it says nothing.

    Attributes:
        reservations: How many there are.
        promised: Uids of pods whose gate may go, because that is reserved for them.
    """

    revision: int
    at: float
    namespace: str
    is_there: bool = True
    accounts: Mapping[str, Account] = field(default_factory=dict)
    reservations: int = 0
    promised: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFact:
    """A namespace from this revision on.

    Attributes:
        is_deferred: It has opted in.
        is_paced: Its pods wait behind the gate while it has.
        lets_through: They need no gate while there is room.
    """

    revision: int
    at: float
    namespace: str
    is_deferred: bool = True
    is_paced: bool = True
    lets_through: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFact:
    """A cluster quota from this revision on.

    Attributes:
        members: Namespaces that its status lists; what they take is what it limits.
    """

    revision: int
    at: float
    name: str
    uid: str
    is_there: bool = True
    hard: Amounts = field(default_factory=dict)
    conditions: tuple[Expression, ...] = ()
    members: tuple[str, ...] = ()
    namespace: str = ""

    def selects(self, traits: Traits) -> bool:
        """Say whether the quota charges pods with these traits, in its namespaces."""
        return self.is_there and all(each.selects(traits) for each in self.conditions)


GATE: Final = "deferredquota.io/quota"
CLUSTER_PREFIX: Final = "cdq/"
"""How ledgers name the accounts of cluster quotas."""

_EXCLUDE = "deferredquota.io/exclude"
_LET_THROUGH = "deferredquota.io/ungated"
_MODE, _GATING = "deferredquota.io/mode", "deferredquota.io/gating"

Fact: TypeAlias = PodFact | QuotaFact | LedgerFact | SpaceFact | ClusterFact

_KINDS: Mapping[str, type[Fact]] = {
    "pod": PodFact,
    "quota": QuotaFact,
    "ledger": LedgerFact,
    "namespace": SpaceFact,
    "cluster quota": ClusterFact,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def pod_fact(
    pod: Mapping[str, Any], *, revision: int, at: float, wall: float, is_deleted: bool = False
) -> PodFact:
    """Read a pod.

    Args:
        pod: The object, as it is or last was.
        revision: The revision that made it so.
        at: When that was seen, on the monotonic clock.
        wall: The same moment as seconds since 1970.
        is_deleted: Whether this revision removed it.
    """
    metadata = pod["metadata"]
    phase = (pod.get("status") or {}).get("phase")
    return PodFact(
        revision=revision,
        at=at,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        is_assigned=bool(pod["spec"].get("nodeName")),
        is_live=not is_deleted and phase not in ENDED_PHASES,
        released_at=_released_at(metadata, at, wall),
        traits=traits_of(pod),
        usage=pod_usage(pod),
        is_gated=any(gate.get("name") == GATE for gate in pod["spec"].get("schedulingGates") or ()),
        is_let_through=_LET_THROUGH in (metadata.get("annotations") or {}),
    )


def _released_at(metadata: Mapping[str, Any], at: float, wall: float) -> float | None:
    """A whole grace period after `deletionTimestamp`, which is the end of the grace period."""
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if deleted is None or grace is None:
        return None
    moment = datetime.fromisoformat(deleted).timestamp()
    return at + moment + float(grace) - wall


def quota_fact(
    quota: Mapping[str, Any], *, revision: int, at: float, is_deleted: bool = False
) -> QuotaFact:
    """Read a ResourceQuota."""
    metadata, spec = quota["metadata"], quota.get("spec") or {}
    status = quota.get("status") or {}
    shown = {*(status.get("hard") or ()), *(status.get("used") or ())}
    is_ours = (metadata.get("annotations") or {}).get(_EXCLUDE) != "true"
    return QuotaFact(
        revision=revision,
        at=at,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        is_there=not is_deleted,
        hard=_deferred(read_amounts(spec.get("hard"))) if is_ours else {},
        conditions=expressions(spec),
        unmasked=tuple(sorted(shown.intersection(DEFERRED_KEYS))) if is_ours else (),
    )


def _lines(reservations: object) -> list[str]:
    """Split the lines of which each is a reservation."""
    return [line for line in str(reservations or "").split("\n") if line]


def ledger_fact(
    ledger: Mapping[str, Any], *, revision: int, at: float, is_deleted: bool = False
) -> LedgerFact:
    """Read a QuotaLedger; a status that cannot be read says nothing."""
    namespace = ledger["metadata"]["namespace"]
    status = ledger.get("status")
    if is_deleted or not isinstance(status, Mapping):
        return LedgerFact(revision=revision, at=at, namespace=namespace, is_there=not is_deleted)
    try:
        accounts = {each["name"]: _account(each) for each in status.get("quotas") or ()}
    except (KeyError, TypeError, ValueError, AttributeError):
        accounts = {}
    return LedgerFact(
        revision=revision,
        at=at,
        namespace=namespace,
        accounts=accounts,
        reservations=len(_lines(status.get("reservations"))),
        promised=tuple(filter(None, map(_promised, _lines(status.get("reservations"))))),
    )


def _promised(line: str) -> str:
    """Return the uid of a pod that was released by this reservation; empty for any other."""
    uid, _, source, *_ = [*line.split(" ", 3), "", ""]
    if line.startswith("{"):
        with contextlib.suppress(ValueError, AttributeError):  # written by hand, perhaps
            raw = msgspec.json.decode(line)
            uid, source = str(raw.get("uid")), raw.get("door")
    return uid if source == "Release" else ""


def space_fact(
    namespace: Mapping[str, Any], *, revision: int, at: float, is_deleted: bool = False
) -> SpaceFact:
    """Read a Namespace."""
    labels = namespace["metadata"].get("labels") or {}
    return SpaceFact(
        revision=revision,
        at=at,
        namespace=namespace["metadata"]["name"],
        is_deferred=labels.get(_MODE) == "deferred" and not is_deleted,
        is_paced=labels.get(_GATING) != "never",
        lets_through=labels.get(_GATING) == "auto",
    )


def cluster_fact(
    quota: Mapping[str, Any], *, revision: int, at: float, is_deleted: bool = False
) -> ClusterFact:
    """Read a ClusterDeferredQuota."""
    metadata, spec, status = quota["metadata"], quota.get("spec") or {}, quota.get("status") or {}
    return ClusterFact(
        revision=revision,
        at=at,
        name=metadata["name"],
        uid=metadata["uid"],
        is_there=not is_deleted,
        hard=_deferred(read_amounts(spec.get("hard"))),
        conditions=expressions(spec),
        members=tuple(sorted(each["name"] for each in status.get("namespaces") or ())),
    )


def elastic_limits(quotas: Iterable[Mapping[str, Any]]) -> list[ClusterFact]:
    """Return the limits that ElasticQuotas set: the pool that they make together, and each max."""
    size: Counter[str] = Counter()
    members: list[str] = []
    limits: list[ClusterFact] = []
    for quota in quotas:
        namespace = quota["metadata"]["namespace"]
        members.append(namespace)
        size.update(_deferred(read_amounts(quota["spec"].get("min"))))
        limits.append(
            ClusterFact(
                revision=0,
                at=0.0,
                name=f"max of {namespace}",
                uid=quota["metadata"]["uid"],
                hard=_deferred(read_amounts(quota["spec"].get("max"))),
                members=(namespace,),
            )
        )
    pool = ClusterFact(
        revision=0, at=0.0, name="pool", uid="pool", hard=dict(size), members=tuple(members)
    )
    return [pool, *limits] if members else []


def _account(raw: Mapping[str, Any]) -> Account:
    return Account(
        uid=raw["observed"]["uid"],
        used=_deferred(read_amounts(raw.get("used"))),
        reserved=_deferred(read_amounts(raw.get("reserved"))),
        hard=_deferred(read_amounts(raw.get("hard"))),
    )


def _deferred(amounts: Amounts) -> dict[str, int]:
    return {key: amount for key, amount in amounts.items() if key in DEFERRED_KEYS}


def to_line(fact: Fact) -> bytes:
    """Write a fact as one line."""
    return msgspec.json.encode([_NAMES[type(fact)], fact]) + b"\n"


def from_line(line: bytes) -> Fact:
    """Read a line of `to_line`."""
    kind, raw = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
    return msgspec.json.decode(raw, type=_KINDS[kind])
