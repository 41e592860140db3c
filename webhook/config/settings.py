"""The settings as values: one dataclass per section, under each field its name and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from webhook.config.job_rules import JobRuleSettings

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
    """As the API server does: a pod that leaves one out is denied when it is created. A pod that
    was created before its namespace opted in is denied at its bind."""

    BIND = "bind"
    """Such a pod is created and stays gated; its bind is denied."""

    OFF = "off"
    """Never: a resource that is left out is charged as zero."""


class MirrorPods(StrEnum):
    """Treatment of mirror pods, which the kubelet runs whether they are admitted or not."""

    CHARGE = "charge"
    """They are charged up to what is left of their quotas; only shared quotas deny them."""

    ENFORCE = "enforce"
    """They are denied like other pods, as the API server does."""


class TerminatingPods(StrEnum):
    """How long a pod is charged that is being deleted and has not ended."""

    RELEASE = "Release"
    """As the API server does: until its grace period is long over, even if the pod still exists."""

    HOLD = "Hold"
    """Until the API server has removed the pod."""


class Coverage(StrEnum):
    """Which quotas satisfy `requireQuotaForPriority`."""

    PRODUCT = "product"
    """A quota that limits a resource of pods and selects the pod with all its scopes."""

    PLATFORM = "platform"
    """As the API server counts for `limitedResources`: any quota with an expression of the scope
    that matches the pod, whatever it limits and whatever its other scopes say."""


class QuotaUpdate(StrEnum):
    """What may change in the spec of a ResourceQuota."""

    ALLOW = "allow"
    """All that the API server lets change: everything but `spec.scopes`."""

    SCOPES = "scopes"
    """The amounts only: the scopes of a quota stay as they were created."""

    REJECT = "reject"
    """Nothing: another quota is created beside the old one, which is then deleted."""


class Gating(StrEnum):
    """Whether pods are gated until quota is reserved for them."""

    ALWAYS = "always"
    """Every pod that a quota selects is created with a scheduling gate, removed when the pod
    fits."""

    AUTO = "auto"
    """Only pods for which little quota is free, counted with the pods before them, are gated."""

    NEVER = "never"
    """No gates: the bind of a pod that does not fit is denied, and the scheduler tries again."""


class BindNodeFit(StrEnum):
    """What is done about a bind to a node whose kubelet would not admit the pod."""

    OFF = "Off"
    """Nothing: nodes are not looked at."""

    WARN = "Warn"
    """The client that binds the pod gets a warning with the numbers."""

    DENY = "Deny"
    """The bind is denied."""


class QueueOrder(StrEnum):
    """Effect of a queued pod that does not fit on the pods behind it."""

    STRICT = "StrictFIFO"
    """It blocks every later pod that shares a quota with it which it does not fit."""

    BEST_EFFORT = "BestEffortFIFO"
    """Later pods that fit overtake it, up to `maxOvertakes` and `maxWaitSeconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Queue of the gated pods of a namespace: higher priority first, then older."""

    order: QueueOrder = QueueOrder.STRICT
    """`queue.order`: effect of a queued pod that does not fit on the pods behind it."""

    max_overtakes: int = 100
    """`queue.maxOvertakes`, 0 to 1000000: how many pods may overtake one that does not fit,
    before it blocks those behind it. For `BestEffortFIFO`."""

    max_wait_seconds: int = 300
    """`queue.maxWaitSeconds`, 0 to 604800: how long pods may overtake one that does not fit,
    before it blocks those behind it. For `BestEffortFIFO`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Durations, in whole seconds."""

    ledger_seconds: int = 3
    """`timeouts.ledgerSeconds`, 1 to 30: how long one request may try to write its reservation,
    before it is answered 429 "try again"."""

    expire_reservation_seconds: int = 45
    """`timeouts.expireReservationSeconds`, 35 to 3600: how long a reservation is kept for a pod
    that does not become assigned. A change takes a restart. An API request can last 34 s, so less
    would free a quota that is about to be used."""

    gate_release_seconds: int = 60
    """`timeouts.gateReleaseSeconds`, 1 to 86400: how long a reservation is kept for a pod whose
    gate was removed and for which the scheduler finds no node. Its bind is charged again. It is
    never less than `expireReservationSeconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one replica."""

    body_bytes: int = 7 * 1024 * 1024
    """`limits.bodyBytes`, 64 KiB to 64 MiB: the largest request body. A change takes a restart.
    The default holds two objects of the API server's own limit of 3 MiB, the new one and the old
    one."""

    threads: int = 64
    """`limits.threads`, 1 to 64: requests answered at the same time. A change takes a restart.
    Binds mostly wait for the write that they share, and the more wait together the fewer writes
    there are."""

    reservations_per_namespace: int = 4000
    """`limits.reservationsPerNamespace`, 1 to 4000: pods of one namespace that may hold a
    reservation at a time. The upper end is what fits into one stored object. A quarter of them, and
    of the object, is for binds alone: releases, resizes and pods that are created with a node leave
    it free. Where more than half is taken, `gating: auto` gates every new pod."""

    reasons_per_second: int = 20
    """`limits.reasonsPerSecond`, 0 to 1000: conditions and events written per second about queued
    pods. 0 writes none."""

    labels_per_second: int = 50
    """`limits.labelsPerSecond`, 1 to 1000: labels `nos.nebuly.com/capacity` written per second."""

    log_allowed_every: int = 1
    """`limits.logAllowedEvery`, 0 to 1000000: of so many allowed decisions one is logged. 0 logs
    none; what is denied, undecided or failed is always logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """Scheduler extender, see `manifests/scheduler`."""

    enabled: bool = False
    """`extender.enabled`: whether `/scheduler/filter` and `/scheduler/preempt` are served, on the
    port of the webhook. Schedulers do not authenticate: a client that reaches the port, and knows
    the name and uid of a pod, can then read the numbers of the quota that denies it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Read-only page of the controller, see `docs/page.md`. A change takes a restart."""

    enabled: bool = False
    """`page.enabled`: whether the controller serves it, on the loopback address of its pod."""

    port: int = 8081
    """`page.port`, 1024 to 65535: its port, plain HTTP, for `kubectl port-forward`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSettings:
    """Certificates of an installation behind its Service, see `docs/certificates.md`."""

    rotate: bool = True
    """`certificates.rotate`: whether the leading controller renews the Secrets and writes the
    `caBundle` of the registrations. Certificates of another program are never touched."""


class ElasticLabelOrder(StrEnum):
    """What decides first which pods of an elastic quota are within its min."""

    CREATION_TIME = "CreationTime"
    """The older pod; of those of one second the one with the higher priority."""

    PRIORITY = "Priority"
    """The higher priority; of those with one priority the older pod."""


class ReclaimMode(StrEnum):
    """What is done so that quotas get back what others have borrowed."""

    OFF = "Off"
    """Nothing."""

    PLAN = "Plan"
    """Conditions of the pods that wait say which pods would be evicted."""

    ACT = "Act"
    """The pods are evicted. The controller needs the right to it, see `docs/elastic-quotas.md`."""


class NodeFit(StrEnum):
    """Whether the pod that others are evicted for needs a node."""

    REQUIRE = "Require"
    """No plan without a node that has room for it afterwards."""

    OFF = "Off"
    """Nodes are not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSettings:
    """How quotas get back what others have borrowed, see `docs/elastic-quotas.md`."""

    mode: ReclaimMode = ReclaimMode.PLAN
    """`elastic.reclaim.mode`: `Off`, `Plan` or `Act`."""

    after_seconds: int = 5
    """`elastic.reclaim.afterSeconds`, 0 to 86400: how long a pod waits before others are evicted
    for it. `spec.reclaim.afterSeconds` of its quota comes first."""

    protect_own_seconds: int = 0
    """`elastic.reclaim.protectOwnSeconds`, 0 to 86400: how long after its bind no pod is evicted,
    not even for the min of an owner."""

    node_fit: NodeFit = NodeFit.REQUIRE
    """`elastic.reclaim.nodeFit`: `Require` or `Off`."""

    max_evictions_per_minute: int = 60
    """`elastic.reclaim.maxEvictionsPerMinute`, 1 to 100000: of the whole cluster.
    Half of it is divided among all quotas; of the rest a quota gets half of what others leave."""

    max_grace_seconds: int = 600
    """`elastic.reclaim.maxGraceSeconds`, 60 to 86400: how long a pod that is evicted may take to
    end, whatever grace period it has. One that was deleted with a longer one is evicted like
    others."""

    cool_down_seconds: int = 30
    """`elastic.reclaim.coolDownSeconds`, 0 to 86400: after a plan that came to nothing, how long
    nothing is evicted for pods of the same namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticSettings:
    """Elastic quotas, see `docs/elastic-quotas.md`."""

    enabled: bool = True
    """`elastic.enabled`: whether binds are charged by elastic quotas, where there are any."""

    gpu_memory_gb: int = 32
    """`elastic.gpuMemoryGB`: GB that a whole GPU counts as `nos.nebuly.com/gpu-memory`."""

    label_order: ElasticLabelOrder = ElasticLabelOrder.CREATION_TIME
    """`elastic.labelOrder`: what decides first which pods are within their quota."""

    headroom: bool = True
    """`elastic.headroom`: whether namespaces may hold more of a pool than they use, up to `min`, so
    that most binds write their ledger alone. Ledgers that hold more are of a format that programs
    without headroom do not read: before you go back to one, switch it off, see `docs/upgrading.md`.
    """

    reclaim: ReclaimSettings = field(default_factory=ReclaimSettings)
    """`elastic.reclaim`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFeatureGates:
    """Feature gates of the API server that decide what of a suspended Job may change.

    `true` and `false` are the API server's setting. `Auto` lets the webhook find it, by the API
    server's version or else by a dry run. While a setting is unknown, nothing is denied by it.
    """

    mutable_pod_resources: bool | None = None
    """`jobGates.MutablePodResourcesForSuspendedJobs`: whether resources may change: true, false or
    `Auto`."""

    mutable_scheduling_directives: bool | None = None
    """`jobGates.MutableSchedulingDirectivesForSuspendedJobs`: whether node selectors, affinity,
    tolerations, labels and annotations may change: true, false or `Auto`."""

    @property
    def is_auto(self) -> bool:
        """Whether one of them has to be found out."""
        return None in self._settings.values()

    @property
    def enabled(self) -> frozenset[str]:
        """The names of the gates that are on where nothing can be found out."""
        return self.enabled_of(frozenset(self._settings))

    def enabled_of(self, detected: frozenset[str]) -> frozenset[str]:
        """Return the names of the gates that are on, as `quota.jobs.job_update_errors` takes them.

        Args:
            detected: The names of those that the API server was found to have on.
        """
        settings = self._settings.items()
        return frozenset(name for name, on in settings if (name in detected if on is None else on))

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
    and memory are, for example `requests.nvidia.com/gpu`. ResourceClaims of a DeviceClass with such
    an `extendedResourceName`, and pods that request its devices by the name of the class, are
    refused in opted-in namespaces: pods request the resource. So are pods of more than 128
    containers where there is such a class: they are not looked through."""

    must_specify: MustSpecify = MustSpecify.CREATE
    """`mustSpecify`: when every container has to name the compute resources that a quota limits."""

    mirror_pods: MirrorPods = MirrorPods.CHARGE
    """`mirrorPods`: treatment of mirror pods, which the kubelet runs whether they are admitted or
    not."""

    terminating_pods: TerminatingPods = TerminatingPods.RELEASE
    """`terminatingPods`: how long a pod is charged that is being deleted and has not ended."""

    limited_resources: tuple[PlainObject, ...] = ()
    """`limitedResources`: resources that may be used only where a quota covers them, in the
    shape of the API server's ResourceQuotaConfiguration: `resource`, and optionally `apiGroup`,
    `matchContains` (texts; for pods only) and `matchScopes` (expressions). Deferred resources are
    checked where the pod is charged, others at its creation; scopes are matched as the API server
    does, whatever `coverage` is."""

    require_quota_for_priority: tuple[PlainObject, ...] = ()
    """`requireQuotaForPriority`: scope expressions (`scopeName`, `operator`, `values`), usually
    of PriorityClass. A pod that matches one of them needs a quota with an expression of the same
    scope that covers it."""

    coverage: Coverage = Coverage.PRODUCT
    """`coverage`: which quotas satisfy `requireQuotaForPriority`."""

    quota_update: QuotaUpdate = QuotaUpdate.ALLOW
    """`quotaUpdate`: what may change in the spec of a ResourceQuota."""

    gating: Gating = Gating.AUTO
    """`gating`: whether pods are gated until quota is reserved for them, for namespaces without the
    label `deferredquota.io/gating`; the label wins. It is written into the registration by
    `scripts/install`."""

    node_fit: BindNodeFit = BindNodeFit.OFF
    """`nodeFit`: what is done about a bind to a node whose kubelet would not admit the pod, see
    `docs/node-fit.md`. Unless it is `Off`, conditions of queued pods say where no node fits
    either. Webhook and controller then need the right to read nodes, which `scripts/install`
    gives them."""

    break_glass_groups: frozenset[str] = frozenset({"system:masters"})
    """`breakGlassGroups`: groups whose users may remove our scheduling gate from a pod and write
    our labels, annotations and ledgers. A list in the file replaces the default."""

    trusted_users: frozenset[str] = frozenset()
    """`trustedUsers`: users that the product's own processes run as, besides its service accounts,
    for processes outside of the cluster. They remove gates and write ledgers."""

    exempt_namespaces: frozenset[str] = frozenset({"kube-system", "kube-public", "kube-node-lease"})
    """`exemptNamespaces`: namespaces that are never deferred, whatever their labels. A list
    in the file replaces the default."""

    queue: Queue = field(default_factory=Queue)
    """`queue`"""

    timeouts: Timeouts = field(default_factory=Timeouts)
    """`timeouts`"""

    limits: Limits = field(default_factory=Limits)
    """`limits`"""

    extender: Extender = field(default_factory=Extender)
    """`extender`"""

    page: PageSettings = field(default_factory=PageSettings)
    """`page`"""

    certificates: CertificateSettings = field(default_factory=CertificateSettings)
    """`certificates`"""

    elastic: ElasticSettings = field(default_factory=ElasticSettings)
    """`elastic`"""

    job_gates: JobFeatureGates = field(default_factory=JobFeatureGates)
    """`jobGates`"""

    jobs: tuple[JobRuleSettings, ...] = ()
    """`jobs`: rules for changes of suspended Jobs. The first rule that selects a Job decides; a Job
    that no rule selects has the defaults below."""
