"""The settings as values: one dataclass per section, under each field its name and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

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
    """They are charged and never refused."""

    ENFORCE = "enforce"
    """They are refused like other pods, as the API server does."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGates:
    """The API server's feature gates that decide what a suspended Job may change.

    The keys in the file are the gates' own names. Set them as the API server has them; the
    defaults are those of Kubernetes 1.36.
    """

    mutable_pod_resources: bool = True
    """`jobGates.MutablePodResourcesForSuspendedJobs`"""

    mutable_scheduling_directives: bool = True
    """`jobGates.MutableSchedulingDirectivesForSuspendedJobs`"""

    @property
    def enabled(self) -> frozenset[str]:
        """The names of the gates that are on, as `quota.job_update_errors` takes them."""
        gates = {
            MUTABLE_POD_RESOURCES: self.mutable_pod_resources,
            MUTABLE_SCHEDULING_DIRECTIVES: self.mutable_scheduling_directives,
        }
        return frozenset(name for name, on in gates.items() if on)


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

    limited_resources: tuple[PlainObject, ...] = ()
    """`limitedResources`: what may be used only where a quota covers it. Plain objects in the
    shape of the API server's ResourceQuotaConfiguration: `resource`, and optionally `apiGroup`,
    `matchContains` (texts) and `matchScopes` (expressions). Keys that are deferred are asked about
    where the pod is charged, others at its creation; scopes are counted as the API server does,
    whatever `coverage` says. Left to the core: operators, values."""

    require_quota_for_priority: tuple[PlainObject, ...] = ()
    """`requireQuotaForPriority`: scope expressions (`scopeName`, `operator`, `values`), usually
    of PriorityClass; a pod that one of them matches needs a quota that has an expression of the
    same scope and covers it. Plain objects, left to the core like `limitedResources`."""

    coverage: Coverage = Coverage.PRODUCT
    """`coverage`: `product` or `platform`: which quotas cover such a pod."""

    quota_update: QuotaUpdate = QuotaUpdate.ALLOW
    """`quotaUpdate`: `allow`, `scopes` or `reject`."""

    exempt_namespaces: frozenset[str] = frozenset({"kube-system", "kube-public", "kube-node-lease"})
    """`exemptNamespaces`: namespaces that are never touched, whatever their labels say. A list
    in the file replaces the default."""

    timeouts: Timeouts = field(default_factory=Timeouts)
    """`timeouts`"""

    limits: Limits = field(default_factory=Limits)
    """`limits`"""

    job_gates: JobGates = field(default_factory=JobGates)
    """`jobGates`"""
