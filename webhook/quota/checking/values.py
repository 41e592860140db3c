"""Verdicts, the rules behind them, and what is known of a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.coverage import CoverageRules
from webhook.quota.checking.classes import ClassTable
from webhook.quota.checking.limit_ranges import LimitRange
from webhook.quota.explaining.values import Shortage
from webhook.quota.jobs.policy import JobRule
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS


class Verdict(StrEnum):
    """Verdict about an object."""

    ADMITTED = "admitted"
    WAITS = "waits"
    """It is stored, and some of its pods wait, or are refused for now."""
    NO_NODE_FITS = "no-node-fits"
    NEVER_FITS = "never-fits"
    """One pod alone is larger than a quota."""
    REFUSED = "refused"

    @property
    def rank(self) -> int:
        """How bad it is, beside the others."""
        return list(Verdict).index(self)


class Rule(StrEnum):
    """Rule that an issue is about; the same in every version."""

    BAD_INPUT = "bad-input"
    DUPLICATE = "duplicate"
    NAMESPACE = "namespace"
    UNKNOWN_FIELD = "unknown-field"
    INVALID = "invalid"
    PRIORITY_CLASS = "priority-class"
    RUNTIME_CLASS = "runtime-class"
    LIMIT_RANGE = "limit-range"
    QUOTA_SCOPES = "quota-scopes"
    QUOTA_BOUNDS = "quota-bounds"
    MUST_SPECIFY = "must-specify"
    QUOTA_REQUIRED = "quota-required"
    JOB_RULE = "job-rule"
    OBJECT_QUOTA = "object-quota"
    QUOTA_EXCEEDED = "quota-exceeded"
    NEVER_FITS = "never-fits"
    QUOTA_WAIT = "quota-wait"
    QUEUE = "queue"
    ROLLOUT = "rollout"
    NODES = "no-node-fits"


RULES: Mapping[Rule, str] = {
    Rule.BAD_INPUT: "The input cannot be read.",
    Rule.DUPLICATE: "No object is in the input twice.",
    Rule.NAMESPACE: "The namespace exists.",
    Rule.UNKNOWN_FIELD: "The API server knows all fields.",
    Rule.INVALID: "Names, resources, affinity, quotas, limits and classes are valid.",
    Rule.PRIORITY_CLASS: "The PriorityClass exists, and the priority is its own.",
    Rule.RUNTIME_CLASS: "The RuntimeClass exists, and overhead and node selector are its own.",
    Rule.LIMIT_RANGE: "Every container, pod and claim is within the LimitRanges.",
    Rule.QUOTA_SCOPES: "The scopes of every ResourceQuota can be evaluated.",
    Rule.QUOTA_BOUNDS: "The quotas are no more, and no larger, than are counted.",
    Rule.MUST_SPECIFY: "Every container states what a quota limits.",
    Rule.QUOTA_REQUIRED: "What needs a quota has one.",
    Rule.JOB_RULE: "The rules of the cluster for Jobs allow it.",
    Rule.OBJECT_QUOTA: "The number of objects, and their storage, is within the quotas.",
    Rule.QUOTA_EXCEEDED: "A pod is within the quotas when it is created.",
    Rule.NEVER_FITS: "One pod alone is not larger than a quota.",
    Rule.QUOTA_WAIT: "All pods have room in the quotas.",
    Rule.QUEUE: "No pod waits behind another.",
    Rule.ROLLOUT: "A rollout has room in the quotas.",
    Rule.NODES: "A node fits.",
}
"""Rule → what holds where it is kept."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that keeps an object, or a warning about it."""

    rule: Rule
    verdict: Verdict
    """What it makes of the object; of a warning ADMITTED."""
    text: str
    field: str = ""
    """YAML path in the object."""
    quota: str = ""
    shortages: tuple[Shortage, ...] = ()
    unstated: tuple[str, ...] = ()
    """Keys that containers have to state."""


@dataclass(frozen=True, slots=True)
class Balance:
    """A quota, or the part of it that is charged at one moment."""

    quota: ResourceQuota
    hard: ResourceList
    used: ResourceList = field(default_factory=dict)
    reserved: ResourceList = field(default_factory=dict)
    """The part of `used` that is reserved and not counted yet."""
    at_bind: bool = False
    """Whether it is charged when a pod is given its node; else when an object is created."""
    holder: tuple[int, str] | None = None
    """Priority and name of a pod that waits for it already and holds those behind it."""

    @property
    def name(self) -> str:
        """The name of the quota."""
        return self.quota.name


@dataclass(frozen=True, slots=True)
class Terms:
    """Facts by which the objects of a namespace are judged."""

    balances: tuple[Balance, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    classes: ClassTable = field(default_factory=ClassTable)
    coverage: CoverageRules = field(default_factory=CoverageRules)
    must_specify: bool = True
    """Whether containers have to state what a quota limits that is charged at the bind."""
    is_deferred: bool = False
    undecided: str = ""
    """Why nothing is bound in the namespace, whatever its quotas have room for; empty otherwise."""
    deferred_keys: frozenset[str] = DEFERRED_KEYS
    """The resources that a quota of several namespaces can limit."""
    is_strict: bool = False
    """Whether a pod that waits holds those behind it."""
    quotas: tuple[ResourceQuota, ...] = ()
    """All of the namespace."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of the namespace."""
    jobs: tuple[JobRule, ...] = ()
    """What is allowed of which Jobs; nothing where no quota is deferred."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one template."""

    pod: Pod
    """One of them as it is created."""
    raw: Mapping[str, object]
    count: int
    surge: int = 0
    """How many more there are during a rollout."""
    is_surge_needed: bool = False
    """Whether a rollout stands still without room for one of them."""
    field: str = ""
    """YAML path of the template in the object."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One object of the manifests."""

    kind: str
    resource: str
    """As error messages name it: "deployments.apps"."""
    namespace: str
    name: str
    groups: tuple[PodGroup, ...] = ()
    usage: ResourceList = field(default_factory=dict)
    """What quotas charge for the object itself."""
    made: ResourceList = field(default_factory=dict)
    """What they charge for other objects than pods that its controller makes."""
    held: tuple[Pod, ...] = ()
    """Pods of its former state, which the quotas are charged for."""
    reserved: frozenset[str] = frozenset()
    """Uids of those that have no node and a reservation."""
    is_replaced: bool = False
    """Whether those pods are gone before new ones are made."""
    refusals: tuple[Issue, ...] = ()
    """Why the object itself is refused whatever is used."""
    issues: tuple[Issue, ...] = ()
    """Why its pods are."""


@dataclass(frozen=True, slots=True)
class Result:
    """The answer about one object."""

    subject: Subject
    issues: tuple[Issue, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst that an issue makes of it."""
        return max((one.verdict for one in self.issues), key=_rank, default=Verdict.ADMITTED)


def _rank(verdict: Verdict) -> int:
    return verdict.rank
