"""The settings as values: one dataclass per section, under each field its name and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from webhook.config.jobs import JobRuleSettings

PlainObject: TypeAlias = Mapping[str, object]

MUTABLE_POD_RESOURCES = "MutablePodResourcesForSuspendedJobs"
MUTABLE_SCHEDULING_DIRECTIVES = "MutableSchedulingDirectivesForSuspendedJobs"


class ConfigurationError(ValueError):
    """A configuration that cannot be used.

    Attributes:
        source: Name of the file, for messages.
        field: Path of the field, as `limits.threads`; empty when the whole text is wrong, or
            when `detail` names the field itself.
        detail: What is wrong.
    """

    def __init__(self, source: str, field: str, detail: str) -> None:
        super().__init__(": ".join(part for part in (source, field, detail) if part))
        self.source = source
        self.field = field
        self.detail = detail


class MustSpecify(StrEnum):
    """When every container has to name the compute resources that a quota limits."""

    CREATE = "create"
    """As the API server: a pod that leaves one out is refused when it is created. One that is
    there already, because its namespace opted in later, is refused at its bind."""

    BIND = "bind"
    """Such a pod is created and waits; it is refused at the bind."""

    OFF = "off"
    """Never: what is left out is charged as nothing."""


class MirrorPods(StrEnum):
    """What happens to mirror pods, which the kubelet runs whether they are admitted or not."""

    CHARGE = "charge"
    """They take what their quotas have left, and are refused by shared quotas only."""

    ENFORCE = "enforce"
    """They are refused like other pods, as the API server does."""


class TerminatingPods(StrEnum):
    """Until when a pod that is being deleted, and has not ended, is charged."""

    RELEASE = "Release"
    """As the API server: until its grace period is long over, although it is there still."""

    HOLD = "Hold"
    """Until it is gone from the API server."""


class Coverage(StrEnum):
    """Which quotas `requireQuotaForPriority` is content with."""

    PRODUCT = "product"
    """A quota that limits something of pods and selects the pod with all its scopes."""

    PLATFORM = "platform"
    """As the API server counts for `limitedResources`: any quota with an expression of the scope
    that matches the pod, whatever it limits and whatever its other scopes say."""


class QuotaUpdate(StrEnum):
    """What may change in the spec of a ResourceQuota."""

    ALLOW = "allow"
    """Whatever the API server lets change: all but `spec.scopes`."""

    SCOPES = "scopes"
    """The amounts only: which pods a quota is about stays as it was created."""

    REJECT = "reject"
    """Nothing: who wants another quota creates it beside the old one and deletes that."""


class Pacing(StrEnum):
    """Whether pods wait for quota before the scheduler looks at them."""

    GATE = "gate"
    """Pods that a quota concerns are created with a scheduling gate, which goes when they fit."""

    AUTO = "auto"
    """The same where little is free for a pod and those before it; who finds room needs no gate."""

    NONE = "none"
    """No gates: what does not fit is refused at its bind, and tried again by the scheduler."""


class QueueOrder(StrEnum):
    """What a waiting pod that does not fit means for those behind it."""

    STRICT = "StrictFIFO"
    """It holds every later pod that one of the quotas is about which it does not fit."""

    BEST_EFFORT = "BestEffortFIFO"
    """Later pods that fit pass it, but not for ever: see `Queue`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How the pods of a namespace wait behind our gate; of higher priority first, then older."""

    order: QueueOrder = QueueOrder.STRICT
    """`queue.order`: `StrictFIFO` or `BestEffortFIFO`."""

    max_overtakes: int = 100
    """`queue.maxOvertakes`, 0 to 1000000: how many pods may pass one that does not fit; it then
    holds those behind it. For `BestEffortFIFO`."""

    max_wait_seconds: int = 300
    """`queue.maxWaitSeconds`, 0 to 604800: for how long pods may pass one that does not fit; it
    then holds those behind it. For `BestEffortFIFO`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long things may take, in whole seconds."""

    ledger_seconds: int = 3
    """`timeouts.ledgerSeconds`, 1 to 30: how long one request may try to write its reservation
    before it is answered with "try again"."""

    expire_reservation_seconds: int = 45
    """`timeouts.expireReservationSeconds`, 35 to 3600: how long a reservation is kept for a pod
    that does not become assigned. An API request can last 34 s, so less would free a quota that
    is about to be used."""

    gate_release_seconds: int = 60
    """`timeouts.gateReleaseSeconds`, 1 to 86400: how long the scheduler may find no node for a
    pod whose gate was removed, until what is reserved for it goes to others. The pod is asked
    about again when it is bound. It is never less than `expireReservationSeconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings that keep one replica healthy."""

    body_bytes: int = 7 * 1024 * 1024
    """`limits.bodyBytes`, 64 KiB to 64 MiB: the largest request body. The default holds two
    objects of the API server's own limit of 3 MiB, the new one and the old one."""

    threads: int = 16
    """`limits.threads`, 1 to 64: requests answered at the same time. A change takes a restart."""

    reservations_per_namespace: int = 4000
    """`limits.reservationsPerNamespace`, 1 to 4000: pods of one namespace that may be between
    admission and bind. The upper end is what fits into one stored object."""

    reasons_per_second: int = 20
    """`limits.reasonsPerSecond`, 0 to 1000: how many conditions and events are written on waiting
    pods per second, to say why they wait. 0 writes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """What schedulers are answered, see `manifests/scheduler`."""

    enabled: bool = False
    """`extender.enabled`: whether `/scheduler/filter` and `/scheduler/preempt` are there, on the
    port of the webhook. A scheduler names itself by nothing: whoever reaches the port, and knows
    the name and uid of a pod, is then told the numbers of the quota that refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGates:
    """The API server's feature gates that decide what a suspended Job may change.

    The keys in the file are the gates' own names. `true` and `false` say how the API server has
    them; `Auto`, which is None here, lets the webhook find out by the API server's version and,
    where that does not tell, by a try. For what cannot be found out, nothing is refused.
    """

    mutable_pod_resources: bool | None = None
    """`jobGates.MutablePodResourcesForSuspendedJobs`: true, false or `Auto`."""

    mutable_scheduling_directives: bool | None = None
    """`jobGates.MutableSchedulingDirectivesForSuspendedJobs`: true, false or `Auto`."""

    @property
    def is_auto(self) -> bool:
        """Whether one of them has to be found out."""
        return None in self._settings.values()

    @property
    def enabled(self) -> frozenset[str]:
        """The names of the gates that are on where nothing can be found out."""
        return self.enabled_of(frozenset(self._settings))

    def enabled_of(self, found: frozenset[str]) -> frozenset[str]:
        """Return the names of the gates that are on, as `quota.jobs.job_update_errors` takes them.

        Args:
            found: The names of those that the API server was found to have on.
        """
        settings = self._settings.items()
        return frozenset(name for name, on in settings if (name in found if on is None else on))

    def unsure_of(self, unknown: frozenset[str]) -> frozenset[str]:
        """Return the names of the gates that have to be found out and could not be.

        Args:
            unknown: The names of those that could not.
        """
        return frozenset(name for name, on in self._settings.items() if on is None) & unknown

    @property
    def _settings(self) -> Mapping[str, bool | None]:
        return {
            MUTABLE_POD_RESOURCES: self.mutable_pod_resources,
            MUTABLE_SCHEDULING_DIRECTIVES: self.mutable_scheduling_directives,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All settings; `Configuration()` has the defaults."""

    deferred_resources: tuple[str, ...] = ()
    """`deferredResources`: quota keys of extended resources that are charged at the bind as cpu
    and memory are, for example `requests.nvidia.com/gpu`."""

    must_specify: MustSpecify = MustSpecify.CREATE
    """`mustSpecify`: `create`, `bind` or `off`."""

    mirror_pods: MirrorPods = MirrorPods.CHARGE
    """`mirrorPods`: `charge` or `enforce`."""

    terminating_pods: TerminatingPods = TerminatingPods.RELEASE
    """`terminatingPods`: `Release` or `Hold`."""

    limited_resources: tuple[PlainObject, ...] = ()
    """`limitedResources`: what may be used only where a quota covers it. Plain objects in the
    shape of the API server's ResourceQuotaConfiguration: `resource`, and optionally `apiGroup`,
    `matchContains` (texts; for pods only) and `matchScopes` (expressions). Keys that are deferred
    are asked about where the pod is charged, others at its creation; scopes are counted as the API
    server does, whatever `coverage` says. Left to the core: operators, values."""

    require_quota_for_priority: tuple[PlainObject, ...] = ()
    """`requireQuotaForPriority`: scope expressions (`scopeName`, `operator`, `values`), usually
    of PriorityClass; a pod that one of them matches needs a quota that has an expression of the
    same scope and covers it. Plain objects, left to the core like `limitedResources`."""

    coverage: Coverage = Coverage.PRODUCT
    """`coverage`: `product` or `platform`: which quotas cover such a pod."""

    quota_update: QuotaUpdate = QuotaUpdate.ALLOW
    """`quotaUpdate`: `allow`, `scopes` or `reject`."""

    pacing: Pacing = Pacing.GATE
    """`pacing`: `gate`, `auto` or `none`, for namespaces without the label
    `deferredquota.io/pacing`; the label wins. It is written into the registration by
    `scripts/install`."""

    break_glass_groups: frozenset[str] = frozenset({"system:masters"})
    """`breakGlassGroups`: groups of users who may take our scheduling gate off a pod and write our
    labels, annotations and ledgers by hand. A list in the file replaces the default."""

    trusted_users: frozenset[str] = frozenset()
    """`trustedUsers`: names of users that the product's own processes are, besides its service
    accounts, as those of processes that run outside of the cluster. They take gates off, and write
    ledgers."""

    exempt_namespaces: frozenset[str] = frozenset({"kube-system", "kube-public", "kube-node-lease"})
    """`exemptNamespaces`: namespaces that are never touched, whatever their labels say. A list
    in the file replaces the default."""

    queue: Queue = field(default_factory=Queue)
    """`queue`"""

    timeouts: Timeouts = field(default_factory=Timeouts)
    """`timeouts`"""

    limits: Limits = field(default_factory=Limits)
    """`limits`"""

    extender: Extender = field(default_factory=Extender)
    """`extender`"""

    job_gates: JobGates = field(default_factory=JobGates)
    """`jobGates`"""

    jobs: tuple[JobRuleSettings, ...] = ()
    """`jobs`: rules for what may be changed of suspended Jobs; the first that is about a Job
    decides, and for a Job that none is about the defaults of one do."""
