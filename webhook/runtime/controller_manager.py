"""The controller's parts in one process, and which of several such processes writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from webhook.controllers.conditions.controller import PodConditionController
from webhook.controllers.elastic.capacity_labels import ASSIGNED_PODS, CapacityLabels
from webhook.controllers.elastic.controller import ElasticQuotaController
from webhook.controllers.elastic.precedence import OwnersFirst
from webhook.controllers.elastic.reclaim_controller import Reclaimer
from webhook.controllers.elastic.reclaim_view import ReclaimParts
from webhook.controllers.gating.controller import PodGatingController
from webhook.controllers.label_validation import LabelValidator
from webhook.controllers.ledger.controller import LedgerController
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.mask.controller import StatusMaskController
from webhook.controllers.mask.webhook_registration import RegistrationReader, assume_registered
from webhook.controllers.overview import ClusterOverview
from webhook.controllers.queue.controller import ReleaseOptions
from webhook.controllers.requeue.controller import RequeueOptions, Requeuer
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.election import Election
from webhook.controllers.runtime.events import EventLimits, EventRecorder, ObjectReference
from webhook.controllers.runtime.leadership import always_leader
from webhook.controllers.shadow.controller import ShadowController
from webhook.kube.api import CONFIG_MAPS
from webhook.kube.informer import Informer
from webhook.quota.queue.queued_pods import PendingStatus
from webhook.quota.shared.cluster_quotas import ledger_name
from webhook.runtime.certificate_rotation import CertificateRotation
from webhook.runtime.controller_options import (
    ControllerOptions,
    LeaderElectionConfig,
    LiveConfig,
    SharedCaches,
)
from webhook.state.well_known import (
    CONFIG_MAP,
    IN_FORCE,
    LEADER_LEASE,
    NOT_IN_FORCE,
)
from webhook.telemetry.metrics import Metrics

_POD_EVENTS: Final = EventLimits(per_second=1000.0, burst=1000, max_remembered=512)
"""The reports on pods pace it; what is said of ledgers and quotas does not wait for that. Of a pod
nearly every event is said once, so few are remembered: each takes almost a kilobyte."""


class ControllerManager:
    """All control loops of a process: ledgers, queues, mask, conditions, elastic quotas, events."""

    def __init__(
        self, caches: SharedCaches, config: LiveConfig, metrics: Metrics, options: ControllerOptions
    ) -> None:
        candidate = options.candidate
        self._election = None if candidate is None else _election(candidate)
        expire = options.expire_seconds
        if expire is None:
            expire = float(config.configuration().timeouts.expire_reservation_seconds)
        timings = replace(options.timings, expire_seconds=expire)
        instance = "" if candidate is None else candidate.identity
        managed = ManagedNamespaces(
            quotas=caches.quotas,
            namespaces=caches.namespaces,
            exempt=lambda: config.policy().exempt_namespaces,
            unmasked=lambda: config.policy().unmasked_namespaces,
            unmasked_keys=lambda: config.policy().unmasked_keys,
            guard=caches.guard,
        )
        self._events = EventRecorder(
            caches.api, instance=instance, timings=timings, metrics=metrics
        )
        self._pod_events = EventRecorder(
            caches.api, instance=instance, limits=_POD_EVENTS, timings=timings, metrics=metrics
        )
        context = ControllerContext(
            api=caches.api,
            leader_epoch=always_leader if self._election is None else self._election.epoch,
            timings=timings,
            events=self._events,
            metrics=metrics,
        )
        self._pod_conditions = PodConditionController(
            replace(context, events=self._pod_events),
            lambda: self.ledger_controller.pods,
            per_second=lambda: config.configuration().limits.reasons_per_second,
            nodes=caches.nodes,
        )
        self._requeuer = Requeuer(
            context,
            lambda: self.ledger_controller.pods,
            RequeueOptions(
                is_enabled=lambda: config.configuration().extender.enabled,
                ledgers=caches.ledgers,
                managed=managed,
                policy=config.queue_policy,
            ),
        )
        release = ReleaseOptions(
            policy=config.queue_policy,
            max_reservations=lambda: config.configuration().limits.reservations_per_namespace,
            gate_release_seconds=lambda: config.configuration().timeouts.gate_release_seconds,
            may_admit_ungated=lambda name: config.may_admit_ungated(caches.namespaces.labels(name)),
            workers=options.gate_workers,
            on_queue=self._on_queue,
            on_reservations_lost=self._pod_conditions.on_reservations_lost,
            precedence=lambda *queue: self._owners_first.order(*queue),  # noqa: PLW0108 - made below
        )
        self.ledger_controller: Final = LedgerController(
            context,
            caches.ledgers,
            managed,
            ledger_informer=caches.ledger_informer,
            shared=caches.shared,
            options=release,
        )
        self._pod_gating = PodGatingController(
            context,
            self.ledger_controller.usage_cache,
            caches.ledgers,
            caches.shared,
            gating=lambda name: config.gating_by_need(caches.namespaces.labels(name)),
            max_reservations=release.max_reservations,
            are_ledgers_seen=lambda: (
                caches.ledger_informer is None or caches.ledger_informer.has_synced
            ),
        )
        if caches.ledger_informer is not None:
            caches.ledger_informer.add_handler(self._pod_gating.on_ledger)
        self.overview: Final = ClusterOverview(
            self.ledger_controller.usage_cache, caches.ledgers, caches.shared, timings, release
        )
        self.ledger_controller.pods.add_handler(self._requeuer.on_pod)
        self.ledger_controller.pods.add_handler(self._pod_conditions.on_pod)
        self._status_mask = StatusMaskController(
            context,
            managed,
            registration=assume_registered if candidate is None else RegistrationReader(caches.api),
        )
        self._label_validator = LabelValidator(
            context,
            gating=lambda: config.configuration().gating,
            exempt=lambda: config.policy().exempt_namespaces,
        )
        self._elastic = ElasticQuotaController(
            context,
            managed,
            caches.shared,
            lambda: config.configuration().elastic,
            on_change=lambda: self._capacity_labels.requeue_all(),  # noqa: PLW0108 - made below
        )
        self._owners_first = OwnersFirst(
            self._elastic.quotas,
            caches.shared,
            lambda: config.configuration().elastic,
            self.ledger_controller.usage_cache.requeue_after,
            context.leader_epoch,
            self.ledger_controller.usage_cache.is_stuck,
        )
        self._capacity_labels = CapacityLabels(
            context, self._elastic.quotas, config.configuration, self.ledger_controller.pods.get
        )
        self._reclaimer = Reclaimer(
            context,
            ReclaimParts(
                quotas=self._elastic.quotas,
                assigned=self._capacity_labels.pods,
                pods=lambda: self.ledger_controller.pods,
                caches=lambda: {
                    **self.informers,
                    ASSIGNED_PODS: self._capacity_labels.pods,
                    "namespaces": managed.namespaces.informer,
                },
                ledgers=caches.ledgers,
                shared=caches.shared,
                cluster_quotas=lambda: [ledger_name(one.name) for one in managed.shared_specs()],
                requeue_after=self.ledger_controller.usage_cache.requeue_after,
                settings=lambda: config.configuration().elastic,
                uncharged_at=self.ledger_controller.usage_cache.uncharged_at,
                holds_terminating=lambda: config.policy().holds_terminating,
                patience=release.gate_release_seconds,
                max_reservations=release.max_reservations,
            ),
        )
        managed.quotas.shared.informer.add_handler(self._reclaimer.on_shared_quota)
        self._certificates = (
            None
            if candidate is None
            else CertificateRotation(
                context,
                candidate.namespace,
                is_enabled=lambda: config.configuration().certificates.rotate,
            )
        )
        self._shadow = ShadowController(
            context,
            self.ledger_controller.pods,
            caches.quotas,
            name=f"controller-{uuid4().hex[:8]}",
            exempt=managed.exempt,
        )

    @property
    def informers(self) -> dict[str, Informer[Any]]:
        """The caches that are the controller's own, by what they hold."""
        return {
            "pods of the controller": self.ledger_controller.pods,
            **{kind.plural: one for kind, one in self._elastic.informers.items()},
            **self._capacity_labels.informers,
        }

    def start(self) -> None:
        """Start to count, and to stand for election."""
        self._events.start()
        self._pod_events.start()
        self.ledger_controller.start()
        self._pod_conditions.start()
        self._requeuer.start()
        self._pod_gating.start()
        self._status_mask.start()
        self._label_validator.start()
        self._shadow.start()
        self._elastic.start()
        self._capacity_labels.start()
        self._reclaimer.start()
        if self._certificates is not None:
            self._certificates.start()
        if self._election is not None:
            self._election.start()

    def stop(self) -> None:
        """Stop writing, and let another process lead."""
        if self._certificates is not None:
            self._certificates.stop()
        self._reclaimer.stop()
        self._capacity_labels.stop()
        self._elastic.stop()
        self._shadow.stop()
        self._label_validator.stop()
        self._status_mask.stop()
        self._pod_gating.stop()
        self._requeuer.stop()
        self._pod_conditions.stop()
        self.ledger_controller.stop()
        if self._election is not None:
            self._election.stop()
        self._pod_events.stop()
        self._events.stop()

    def apply_configuration(self) -> None:
        """Count everything again: other resources are deferred, or other namespaces exempt."""
        self.ledger_controller.recount()
        self._status_mask.requeue_all()

    def report_configuration(self, namespace: str, faults: Sequence[str]) -> bool:
        """Report by an event which parts of a configuration are not in force, or that all are.

        Return whether this process leads; without, nothing is reported.
        """
        if not self.ledger_controller.is_leader():
            return False
        regarding = ObjectReference(CONFIG_MAPS, CONFIG_MAP, namespace)
        if faults:
            self._events.warning(regarding, NOT_IN_FORCE, "; ".join(faults))
        else:
            self._events.normal(regarding, IN_FORCE, "the configuration is in force")
        return True

    def requeue_waiting(self) -> None:
        """Requeue namespaces with waiting pods: their queues have other rules now."""
        self.ledger_controller.requeue_waiting()
        self._elastic.requeue()
        self._pod_gating.requeue_all()

    def _on_queue(
        self, namespace: str, pending: Mapping[str, PendingStatus], releasable: Collection[str]
    ) -> None:
        """Pass the queue of each namespace on, see `QueueListener`."""
        advised = self._reclaimer.waiting_pods.with_advice(pending)
        self._pod_conditions.on_queue(namespace, advised, releasable)
        self._requeuer.on_queue(namespace, pending, releasable)
        self._owners_first.on_queue(namespace, pending, releasable)
        self._reclaimer.waiting_pods.on_queue(namespace, pending, releasable)

    def readiness_problems(self) -> list[str]:
        """Return what keeps the ledgers from being true; nothing when they are."""
        return self.ledger_controller.readiness_problems()

    def pending_shared_quotas(self) -> list[str]:
        """Return which shared quotas are still being counted; nothing when none is."""
        return self.ledger_controller.pending_shared_quotas()


def _election(candidate: LeaderElectionConfig) -> Election:
    return Election(
        candidate.api, namespace=candidate.namespace, name=LEADER_LEASE, identity=candidate.identity
    )
