"""Every metric, declared once with its unit and its labels.

Label values come from closed sets: what a client sends is mapped to `other` when it is not one of
them (`bounded`), so that clients cannot grow the number of series.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

PREFIX: Final = "deferred_quota"
OTHER: Final = "other"

HANDLERS: Final = frozenset(
    {
        "pods", "bind", "resize", "jobs", "quotas", "mask", "exempt", "filter", "preempt", "shadow",
    }
)  # fmt: skip
OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
BATCH: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
WAITING: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0)
"""Seconds that pods wait for quota: up to a day."""
LEDGER_BYTES: Final = tuple(2.0**exponent for exponent in range(10, 21))
"""1 KiB to 1 MiB; claims that would make a ledger larger than 1.25 MiB are undecided."""

# A second series per counter with the time of its creation says nothing here.
disable_created_metrics()  # type: ignore[no-untyped-call]

_MetricT = TypeVar("_MetricT", Counter, Gauge, Histogram)


@dataclass(frozen=True, slots=True)
class Declared:
    """A metric as it was declared."""

    name: str
    """As in a query: with the prefix, and `_total` for a counter."""
    type: str
    """`counter`, `gauge` or `histogram`."""
    labels: tuple[str, ...]
    text: str


class Declarations:
    """Makes metrics in one registry.

    Attributes:
        declared: What was made, in this order.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.declared: list[Declared] = []
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Make a counter; `name` goes without `_total`."""
        made = Counter(name, text, labels, namespace=PREFIX, registry=self._registry)
        return self._kept(made, Declared(f"{PREFIX}_{name}_total", "counter", labels, text))

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Make a gauge."""
        made = Gauge(name, text, labels, namespace=PREFIX, registry=self._registry)
        return self._kept(made, Declared(f"{PREFIX}_{name}", "gauge", labels, text))

    def histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        """Make a histogram with these upper bounds."""
        made = Histogram(
            name, text, labels, namespace=PREFIX, registry=self._registry, buckets=buckets
        )
        return self._kept(made, Declared(f"{PREFIX}_{name}", "histogram", labels, text))

    def _kept(self, metric: _MetricT, declared: Declared) -> _MetricT:
        self.declared.append(declared)
        return metric


def bounded(value: str, known: Collection[str]) -> str:
    """Return `value` if it is one of `known`, and `other` otherwise."""
    return value if value in known else OTHER


class Metrics:
    """All metrics of one process, in a registry of their own.

    Made in the process that counts: what is counted after a fork is not seen by the other side.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        declare = Declarations(self.registry)
        self.build = BuildMetrics(declare)
        self.admission = AdmissionMetrics(declare)
        self.connections = ConnectionMetrics(declare)
        self.ledger = LedgerMetrics(declare)
        self.api = ApiMetrics(declare)
        self.tls = TlsMetrics(declare)
        self.rotation = RotationMetrics(declare)
        self.cache = CacheMetrics(declare)
        self.configuration = ConfigurationMetrics(declare)
        self.controller = ControllerMetrics(declare)
        self.queue = QueueMetrics(declare)
        self.pod_conditions = PodConditionMetrics(declare)
        self.shadow = ShadowMetrics(declare)
        self.elastic = ElasticMetrics(declare)
        self.page = PageMetrics(declare)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a format that a client accepts, and its content type.

        Exemplars stand in OpenMetrics only, which Prometheus asks for.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class BuildMetrics:
    """The program."""

    def __init__(self, declare: Declarations) -> None:
        self.info = declare.gauge(
            "build_info",
            "1, with what the process is (webhook, controller or all) and the versions of program"
            " and Python.",
            "component",
            "version",
            "python",
        )

    def show(self, component: str, version: str) -> None:
        """Show what this process is, and its version."""
        self.info.labels(component, version, platform.python_version()).set(1)


class AdmissionMetrics:
    """What was asked and answered."""

    def __init__(self, declare: Declarations) -> None:
        self.requests = declare.counter(
            "admission_requests",
            "Admission reviews answered.",
            "handler", "phase", "operation", "outcome", "dry_run",
        )  # fmt: skip
        self.seconds = declare.histogram(
            "admission_duration_seconds",
            "Time from the last byte of a review to its answer.",
            SECONDS,
            "handler", "phase", "outcome", "dry_run",
        )  # fmt: skip
        self.malformed = declare.counter(
            "malformed_requests", "Requests refused because they could not be read.", "reason"
        )
        self.turned_away = declare.counter(
            "turned_away_requests",
            "Requests not decided because they could not be answered in time: a denial for now"
            " (429) of what the API server would refuse without an answer, else HTTP 503.",
            "reason",
        )
        self.in_flight = declare.gauge(
            "requests_in_flight", "Requests that are being answered or wait for a thread."
        )


class ConnectionMetrics:
    """Connections of the webhook port."""

    def __init__(self, declare: Declarations) -> None:
        self.open = declare.gauge("connections_open", "Open connections of the webhook port.")
        self.closed = declare.counter(
            "connections_closed", "Connections closed, by what ended them.", "reason"
        )
        self.refused = declare.counter(
            "clients_refused",
            "Connections refused by their client certificate (`serve --client-ca`):"
            " no_certificate, untrusted (of another CA, ended, not for clients) or other_name.",
            "reason",
        )


class LedgerMetrics:
    """Writes of the ledger at the handlers."""

    def __init__(self, declare: Declarations) -> None:
        self.writes = declare.counter(
            "ledger_writes",
            "Writes of a ledger by webhooks: written, or conflict (a newer one; decided again).",
            "result",
        )
        self.batch_size = declare.histogram(
            "ledger_batch_size", "Requests decided by one ledger write.", BATCH
        )
        self.claim_wait = declare.histogram(
            "claim_wait_seconds",
            "Time that a claim waits until its namespace's ledger is decided for it.",
            SECONDS,
        )
        self.size = declare.histogram(
            "ledger_size_bytes",
            "Size of a ledger as this process wrote it; 1.25 MiB is the most.",
            LEDGER_BYTES,
        )


class ApiMetrics:
    """Calls of the API server."""

    def __init__(self, declare: Declarations) -> None:
        self.requests = declare.counter(
            "api_requests",
            "Calls of the API server, by the status of the answer; timeout, unreachable and failed"
            " are calls without one.",
            "verb",
            "resource",
            "code",
        )
        self.seconds = declare.histogram(
            "api_request_duration_seconds",
            "Time of a call until its answer was read; of a watch until it began.",
            SECONDS,
            "verb",
            "resource",
        )

    def observe(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count a call that has ended."""
        self.requests.labels(verb, resource, code).inc()
        self.seconds.labels(verb, resource).observe(seconds)


class TlsMetrics:
    """The serving certificate."""

    def __init__(self, declare: Declarations) -> None:
        self.not_after = declare.gauge(
            "tls_certificate_not_after_seconds",
            "Unix time at which the certificate in use ends.",
        )
        self.reloads = declare.counter(
            "tls_reloads",
            "Changes of the serving certificate, by files or by the Secret: loaded or refused.",
            "result",
        )
        self.refusing = declare.gauge(
            "tls_unverified_entries",
            "Registered entries whose caBundle does not verify the serving certificate for the name"
            " that they call: the replica is not ready.",
        )


class RotationMetrics:
    """The certificates that the leading controller keeps."""

    def __init__(self, declare: Declarations) -> None:
        self.not_after = declare.gauge(
            "tls_secret_not_after_seconds",
            "Unix time at which the CA that signs (ca), the certificate in the Secret (leaf), or"
            " the last of the CAs that are trusted (bundle) ends.",
            "role",
        )
        self.phase = declare.gauge(
            "tls_rotation_phase",
            "1 for the phase that a change of the CA is in, else 0.",
            "phase",
        )
        self.writes = declare.counter(
            "tls_rotation_writes", "Writes of certificates: ca, leaf, bundle or injected.", "what"
        )
        self.drift = declare.counter(
            "tls_bundle_drift",
            "Times a caBundle was not that of the Secret although no change of it was under way.",
        )
        self.failures = declare.counter(
            "tls_rotation_failures", "Rounds of the rotation that came to nothing.", "reason"
        )


class CacheMetrics:
    """What is known of the cluster, by kind of object."""

    def __init__(self, declare: Declarations) -> None:
        self.synced = declare.gauge(
            "cache_synced", "1 once the cache of a kind holds its first list.", "kind"
        )
        self.age_seconds = declare.gauge(
            "cache_age_seconds", "Time since the API server was last heard of for a kind.", "kind"
        )
        self.objects = declare.gauge("cache_objects", "Objects in the cache of a kind.", "kind")
        self.relists = declare.counter(
            "cache_relists", "Times the cache of a kind was filled anew.", "kind"
        )


class ConfigurationMetrics:
    """The configuration file."""

    def __init__(self, declare: Declarations) -> None:
        self.rejected = declare.gauge(
            "configuration_rejected",
            "1 while the file cannot be used, and the configuration before it stays in force.",
        )
        self.loaded = declare.gauge(
            "configuration_last_success_timestamp_seconds",
            "Unix time at which the configuration in force was read.",
        )
        self.held_back = declare.gauge(
            "configuration_held_back",
            "Changes of the file that are not in force before the registrations are changed.",
        )
        self.reloads = declare.counter(
            "configuration_reloads", "Changes of the file: loaded or rejected.", "result"
        )
        self.digest = declare.gauge(
            "configuration_hash",
            "First 48 bits of the SHA-256 of the file that was loaded last, as a number: replicas"
            " with another one have another configuration. 0 without a file.",
        )


class ControllerMetrics:
    """What the controller does, while it leads."""

    def __init__(self, declare: Declarations) -> None:
        self.leader = declare.gauge("leader", "1 while this process leads.")
        self.changes = declare.counter(
            "leadership_changes", "Leaderships of this process: began or ended.", "change"
        )
        self.settlements = declare.counter(
            "ledger_settlements",
            "Looks at a ledger: written, unchanged, waiting, conflict, stale or failed.",
            "result",
        )
        self.lag_seconds = declare.histogram(
            "ledger_lag_seconds",
            "Time from a change of a pod or quota, as seen, until its ledger was settled.",
            SECONDS,
        )
        self.repairs = declare.counter(
            "ledger_repairs", "Ledgers put right: edited, lost or unreadable.", "reason"
        )
        self.recounts = declare.counter(
            "recounts", "Namespaces compared with a fresh list of their pods.", "result"
        )
        self.drift = declare.counter(
            "drift_pods", "Pods that a fresh list showed to be counted wrongly.", "kind"
        )
        self.unguarded = declare.counter(
            "unguarded_binds",
            "Pods that got their nodes although nothing was reserved for them: past the webhook.",
        )
        self.emergency_since = declare.gauge(
            "emergency_since_seconds",
            "When the emergency was opened, in seconds since 1970, as the leader sees it in the"
            " registrations; 0 while it is closed.",
        )
        self.guard_missing = declare.gauge(
            "guard_missing",
            "1 while no registration guards every bind, as the leader sees it: it is gone, does not"
            " fail closed, or leaves binds out.",
        )
        self.masks = declare.counter(
            "quota_status_repairs",
            "Writes of a ResourceQuota status: masked, restored, conflict, failed, unguarded"
            " (restored because no guard stands) or undone (masked again in the same write).",
            "result",
        )
        self.events = declare.counter(
            "events", "Events on objects: created, repeated, dropped or failed.", "result"
        )


class QueueMetrics:
    """Pods that wait behind our scheduling gate, as the leader sees them."""

    def __init__(self, declare: Declarations) -> None:
        self.pods = declare.counter(
            "released_pods", "Pods that quota was reserved for, so that their gate may go."
        )
        self.waiting = declare.gauge(
            "waiting_pods", "Pods behind our scheduling gate, by why they wait.", "state"
        )
        self.wait_seconds = declare.histogram(
            "queue_wait_seconds",
            "Time from the creation of a gated pod until quota was reserved for it.",
            WAITING,
        )
        self.gates = declare.counter(
            "gate_removals",
            "Patches that remove our scheduling gate: removed, changed (the pod was another by"
            " then), failed, timeout (the API server did not answer in time) or dropped (this"
            " process does not lead any more).",
            "result",
        )
        self.seconds = declare.histogram(
            "gate_removal_seconds",
            "Time from the change that made room for a pod, as seen, until its gate was removed.",
            SECONDS,
        )


class PodConditionMetrics:
    """The conditions that say why pods wait, as the leader writes them."""

    def __init__(self, declare: Declarations) -> None:
        self.conditions = declare.counter(
            "pod_conditions",
            "Conditions of waiting pods: written, dropped (the pod is gone or has its node),"
            " conflict (the pod was another by then) or failed.",
            "result",
        )
        self.backlog = declare.gauge(
            "pod_conditions_backlog", "Pods whose condition waits to be looked at."
        )


class ShadowMetrics:
    """What deferral would change in namespaces in shadow mode."""

    def __init__(self, declare: Declarations) -> None:
        self.creations = declare.counter(
            "shadow_creations",
            "Creations of pods: stored, unexplained (came to nothing, and not for a quota), or what"
            " deferral would make of those that quota refuses: wouldRun, wouldWait, neverFits,"
            " stillRefused or unjudged.",
            "result",
        )
        self.pods = declare.counter(
            "shadow_pods",
            "Stored pods: created, bound or grown, and the same beyond what was free of a quota:"
            " createdOver, boundOver or grownOver.",
            "event",
        )


class ElasticMetrics:
    """Elastic quotas, as the leader charges them."""

    def __init__(self, declare: Declarations) -> None:
        labels = ("quota", "resource")
        self.used = declare.gauge(
            "elastic_used",
            "What the pods of an elastic quota (kind namespace/name) take, in cores, bytes, counts;"
            " reservations of requests on their way included.",
            *labels,
        )
        self.min = declare.gauge(
            "elastic_min", "What is guaranteed to an elastic quota, in the same units.", *labels
        )
        self.borrowed = declare.gauge(
            "elastic_borrowed", "What an elastic quota takes above its min.", *labels
        )
        self.labels = declare.counter(
            "elastic_labels", "Labels of pods written: in-quota, over-quota or removed.", "value"
        )
        self.evictions = declare.counter(
            "elastic_evictions",
            "Pods evicted so that a quota gets back what others have borrowed, by the quotas (kind"
            " namespace/name) of both.",
            "victim", "beneficiary",
        )  # fmt: skip
        self.plans = declare.counter(
            "elastic_plans",
            "Plans to reclaim: planned, acted, blocked, impossible, needless; and how those that"
            " were acted by ended: bound or withdrawn.",
            "outcome",
        )
        self.reclaim_seconds = declare.histogram(
            "elastic_reclaim_seconds",
            "Time from a plan that is acted by until quota is reserved for its pod.",
            SECONDS,
        )
        self._shown: set[tuple[str, str]] = set()

    def show(self, figures: Mapping[tuple[str, str], tuple[float, float, float]]) -> None:
        """Show figures by quota and resource: used, min, borrowed; those of others go.

        One that stays is never missing in between.
        """
        gauges = (self.used, self.min, self.borrowed)
        for of, values in figures.items():
            for gauge, value in zip(gauges, values, strict=True):
                gauge.labels(*of).set(value)
        for of in self._shown - figures.keys():
            for gauge in gauges:
                gauge.remove(*of)
        self._shown = set(figures)


class PageMetrics:
    """The page of the controller."""

    def __init__(self, declare: Declarations) -> None:
        self.requests = declare.counter(
            "page_requests",
            "Answers of the page, by what was asked for (namespaces, namespace, pod, a file of the"
            " page, or other) and status code.",
            "view",
            "code",
        )
