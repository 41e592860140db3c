"""One process' view of a cluster: its handlers, its controller, or both, over shared caches."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

from webhook import __version__
from webhook.admission.deadline import Deadline
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.handlers.dispatch import decide
from webhook.admission.review import AdmissionRequest, AdmissionResponse
from webhook.config import BindNodeFit, Configuration, ConfigurationFile
from webhook.config.watched_file import Rejection
from webhook.controllers.mask.webhook_registration import Guard
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    QUOTA_LEDGERS,
    ClusterApi,
    NotFoundError,
    UnauthorizedError,
)
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.policy import Policy, compile_policy
from webhook.runtime.controller_options import (
    ControllerOptions,
    InForce,
    LiveConfig,
    SharedCaches,
)
from webhook.runtime.effective_configuration import EffectiveConfiguration
from webhook.state.batch_decision import BatchDecider
from webhook.state.cluster_view import CachedView
from webhook.state.feature_gates import FeatureGateProbe
from webhook.state.grant_raising import GrantRaiser
from webhook.state.in_flight import InFlightPods
from webhook.state.ledger_store import LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.namespace_labels import NamespaceLabels
from webhook.state.nodes.bind_fit import BindFit
from webhook.state.quota_cache import QuotaCache
from webhook.state.quota_lister import ElasticQuotaLister
from webhook.state.reserver import Reserver, ReserverStats
from webhook.state.shadow_attempts import CreationTimings, CreationTracker
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.state.well_known import DEFAULT_NAMESPACE
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from webhook.runtime.controller_manager import ControllerManager

_log = logging.getLogger(__name__)

_HOUSEKEEPING_SECONDS: Final = 1.0
_TRIM_SECONDS: Final = 60.0
_WARNING_SECONDS: Final = 300.0
"""Between two events about a configuration that is not in force."""


AnyInformer: TypeAlias = Informer[Any]
"""An informer, whatever it holds."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of an engine."""

    configuration: ConfigurationFile | None = None
    """The file to keep up with; None means the defaults."""
    with_handlers: bool = True
    """Whether this process answers admission requests."""
    controller: ControllerOptions | None = field(default_factory=ControllerOptions)
    """How this process also counts pods and writes ledgers; None if another one does."""
    system_namespace: str = DEFAULT_NAMESPACE
    follow_ledgers: bool = False
    """Whether other processes write ledgers too, so that they have to be watched."""
    is_registered: bool = False
    """Whether an API server asks by registrations that others write: what they do not agree to of
    the configuration is held back."""
    informer: InformerTimings = field(default_factory=InformerTimings)
    """Clock and pauses of all informers."""
    creations: CreationTimings = field(default_factory=CreationTimings)
    """When creations in namespaces in shadow mode are looked at."""


class Engine:
    """Everything that answers admission requests about one cluster, and keeps its ledgers.

    Args:
        metrics: Where things are counted.
        options: How to build it.
    """

    def __init__(
        self, api: ClusterApi, metrics: Metrics, options: EngineOptions | None = None
    ) -> None:
        options = options or EngineOptions()
        self._options = options
        self._metrics = metrics
        metrics.build.show(_component(options), __version__)
        self._feature_gates = FeatureGateProbe(
            api, time.monotonic, namespace=options.system_namespace
        )
        self._effective = (
            EffectiveConfiguration(api, time.monotonic) if options.is_registered else None
        )
        self._in_force = self._compile()
        ledgers = LedgerStore(api, on_write=metrics.ledger.size.observe)
        followed = ledgers.follow(options.informer) if options.follow_ledgers else None
        namespaces = NamespaceCache(api, timing=options.informer)
        store = SharedQuotaStore(api)
        shared = SharedQuotaCache(api, store, timing=options.informer)
        self._node_fit = BindFit(api, options.informer)
        caches = SharedCaches(
            api=api,
            nodes=self._node_fit,
            ledgers=ledgers,
            quotas=QuotaCache(
                api,
                lambda: self.policy.deferred_keys,
                holds_terminating=lambda: self.policy.holds_terminating,
                shared=shared,
                labels=namespaces.labels,
                timing=options.informer,
            ),
            namespaces=namespaces,
            shared=store,
            ledger_informer=followed,
            guard=self._guard,
        )
        self._shared = shared
        self._stores = ledgers, store
        caches.namespaces.informer.add_handler(partial(_forget_deleted_namespace, caches))
        caches.namespaces.informer.add_handler(self._note_own_namespace)
        self._is_namespace_gone = False
        self._informers: dict[str, AnyInformer] = {
            "namespaces": caches.namespaces.informer,
            "resourcequotas": caches.quotas.informer,
            CLUSTER_DEFERRED_QUOTAS.plural: shared.informer,
        }
        if followed is not None:
            self._informers[QUOTA_LEDGERS.plural] = followed
        self.view: Final = self._cached_view(caches) if options.with_handlers else None
        self._creations = (
            None if self.view is None else self._creation_controller(caches, self.view)
        )
        self._context = None if self.view is None else self._handler_context(caches, self.view)
        self.controller: Final = self._controller(caches, options.controller)
        self._relists: dict[str, int] = {}
        self._reported: list[str] | None = None
        self._next_report = 0.0
        self._next_trim = time.monotonic() + _TRIM_SECONDS
        self._stopping = threading.Event()
        self._housekeeper = threading.Thread(
            target=self._housekeep, name="housekeeping", daemon=True
        )

    @property
    def informers(self) -> dict[str, AnyInformer]:
        """All caches, by what they hold."""
        return {
            **self._informers,
            **self._node_fit.informers,
            **({} if self.controller is None else self.controller.informers),
        }

    @property
    def policy(self) -> Policy:
        """The rules that are in force."""
        return self._in_force.policy

    @property
    def configuration(self) -> Configuration:
        """The configuration that they were compiled from."""
        return self._in_force.configuration

    def start(self) -> None:
        """Start to follow the cluster; returns at once."""
        for informer in self._informers.values():
            informer.start()
        # the controller begins by what the registrations say, not by the file alone
        if self._effective is not None and self._effective.refresh():
            self._in_force = self._compile()
        self._follow_nodes()
        if self.controller is not None:
            self.controller.start()
        if self._creations is not None:
            self._creations.start()
        self._housekeeper.start()

    def stop(self) -> None:
        """Stop all threads."""
        self._stopping.set()
        if self._creations is not None:
            self._creations.stop()
        if self.controller is not None:
            self.controller.stop()
        self._node_fit.stop()
        for informer in self._informers.values():
            informer.stop()

    def readiness_problems(self) -> list[str]:
        """Return why this process cannot do its work yet, or any more; nothing when it can."""
        conditions = [
            _not_listed(name, informer)
            for name, informer in self._informers.items()
            if not (_is_following(informer) or self._is_not_installed(name))
        ]
        conditions += self._node_fit.pending
        if self._is_namespace_gone:
            conditions.append(
                f"the namespace {self._options.system_namespace} of the installation is gone"
            )
        if self.controller is not None:
            conditions += self._newer_formats()
            conditions += self.controller.readiness_problems()
        return conditions

    def warnings(self) -> list[str]:
        """Return what people should see to although this process does its work."""
        source = self._options.configuration
        rejection = None if source is None else source.rejection
        messages = [] if rejection is None else [_rejected(rejection)]
        if self._effective is not None:
            messages += [
                f"held back, run scripts/install: {one}" for one in self._effective.pending_fields
            ]
        if self.controller is None:
            # a webhook goes on deciding about all other namespaces
            messages += self._newer_formats()
        return [*messages, *self._node_fit.problems]

    def _newer_formats(self) -> list[str]:
        return [error for store in self._stores for error in store.newer_formats()]

    def wait_until_ready(self, seconds: float) -> list[str]:
        """Wait until requests can be decided; return what is still missing when time is up."""
        return _wait_while(self.readiness_problems, seconds)

    def wait_until_counted(self, seconds: float) -> list[str]:
        """Wait until they can be decided by quotas that namespaces share too; return the same.

        This process has to be the one that counts.
        """
        return _wait_while(
            lambda: self.readiness_problems() or self._pending_shared_quotas(), seconds
        )

    def decide(self, request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
        """Answer one admission request.

        Raises:
            RuntimeError: The engine was built without handlers.
        """
        if self._context is None:
            raise RuntimeError("this engine answers no admission requests")
        rules = self._in_force
        context = replace(self._context, policy=rules.policy, configuration=rules.configuration)
        return decide(context, request, deadline)

    # -- inside ----------------------------------------------------------------------------

    def _guard(self) -> Guard | None:
        return None if self._effective is None else self._effective.guard

    def _guard_uid(self) -> str | None:
        guard = self._guard()
        return None if guard is None else guard.uid

    def _cached_view(self, caches: SharedCaches) -> CachedView:
        view = CachedView(
            caches.api,
            caches.ledgers,
            caches.quotas,
            caches.namespaces,
            timing=self._options.informer,
        )
        self._informers["pods"] = view.pods
        return view

    def _handler_context(self, caches: SharedCaches, view: CachedView) -> HandlerContext:
        reserver = Reserver(
            caches.ledgers,
            GrantRaiser(caches.shared),
            decider=BatchDecider(
                lambda: self.configuration.limits.reservations_per_namespace,
                opted_in_at=caches.namespaces.opted_in_at,
                guard_uid=self._guard_uid,
            ),
            stats=_stats(self._metrics),
        )
        labels = NamespaceLabels(caches.api, time.monotonic)
        return HandlerContext(
            view,
            reserver,
            self.policy,
            self.configuration,
            namespace_labels=labels.of,
            on_creation=None if self._creations is None else self._creations.observe,
            node_fit=self._node_fit,
            in_flight=InFlightPods(view.pods),
            namespaces=labels.all,
            elastic_quotas=ElasticQuotaLister(caches.api).all,
        )

    def _creation_controller(self, caches: SharedCaches, view: CachedView) -> CreationTracker:
        return CreationTracker(
            caches.api,
            view.pods,
            caches.quotas,
            name=f"webhook-{uuid4().hex[:8]}",
            timing=self._options.creations,
            counted=lambda result: self._metrics.shadow.creations.labels(result).inc(),
        )

    def _controller(
        self, caches: SharedCaches, options: ControllerOptions | None
    ) -> ControllerManager | None:
        if options is None:
            return None
        from webhook.runtime.controller_manager import ControllerManager  # noqa: PLC0415 - slow

        current = LiveConfig(lambda: self._in_force)
        return ControllerManager(caches, current, self._metrics, options)

    def _pending_shared_quotas(self) -> list[str]:
        return [] if self.controller is None else self.controller.pending_shared_quotas()

    def _is_not_installed(self, name: str) -> bool:
        """Return whether a kind that need not be there is not."""
        return name == CLUSTER_DEFERRED_QUOTAS.plural and self._shared.is_absent

    def _housekeep(self) -> None:
        """Keep up with the configuration file and show the state of the caches."""
        seconds = 0.0
        while not self._stopping.wait(seconds):
            seconds = _HOUSEKEEPING_SECONDS
            try:
                self._reload()
                self._poll_feature_gates()
                self._export_cache_metrics()
                self._export_configuration()
                self._trim()
            except Exception:  # noqa: BLE001 - outermost frame: logged, and tried again
                _log.exception("housekeeping failed")

    def _trim(self) -> None:
        """Give free memory back, now and then.

        Whole lists are read when a watch begins anew; what is free between blocks that live on
        would be kept by the allocator.
        """
        if time.monotonic() >= self._next_trim:
            trim_heap()
            self._next_trim = time.monotonic() + _TRIM_SECONDS

    def _reload(self) -> None:
        source = self._options.configuration
        is_new = source is not None and self._poll(source)
        is_registered_anew = self._effective is not None and self._effective.refresh()
        if not is_new and not is_registered_anew:
            return
        former, self._in_force = self.policy, self._compile()
        self._follow_nodes()
        if self.controller is None:
            return
        if (
            former.deferred_keys != self.policy.deferred_keys
            or former.holds_terminating != self.policy.holds_terminating
            or former.exempt_namespaces != self.policy.exempt_namespaces
            or former.unmasked_namespaces != self.policy.unmasked_namespaces
            or former.unmasked_keys != self.policy.unmasked_keys
        ):
            self.controller.apply_configuration()
        self.controller.requeue_waiting()

    def _poll(self, source: ConfigurationFile) -> bool:
        """Read the file again if it changed; return whether a new configuration took effect."""
        former = source.rejection
        is_new = source.poll()
        if is_new:
            self._metrics.configuration.reloads.labels("loaded").inc()
        elif source.rejection is not former:
            self._metrics.configuration.reloads.labels("rejected").inc()
        return is_new

    def _follow_nodes(self) -> None:
        """Follow nodes and the pods on them where something is judged by them, and only there."""
        if self.configuration.node_fit is BindNodeFit.OFF:
            self._node_fit.stop()
        else:
            self._node_fit.start()

    def _note_own_namespace(self, change: Change[bool]) -> None:
        """Note whether the namespace of the installation went away while this process runs."""
        if change.key == self._options.system_namespace:
            self._is_namespace_gone = change.type == "DELETED"

    def _poll_feature_gates(self) -> None:
        is_asked_for = self.view is not None and self.configuration.job_gates.is_auto
        if is_asked_for and self._feature_gates.probe():
            self._in_force = self._compile()

    def _compile(self) -> InForce:
        gates, source = self._feature_gates.gates, self._options.configuration
        given = Configuration() if source is None else source.current
        effective = self._effective
        policy = compile_policy(
            given if effective is None else effective.apply(given),
            system_namespace=self._options.system_namespace,
            given=given if effective is None else effective.hiding(given),
            detected_gates=gates.enabled,
            unknown_gates=gates.unsure,
        )
        return InForce(given, policy)

    def _export_configuration(self) -> None:
        metrics, source = self._metrics.configuration, self._options.configuration
        if source is not None:
            metrics.rejected.set(int(source.rejection is not None))
            metrics.loaded.set(source.loaded_at)
            metrics.digest.set(source.digest)
        if self._effective is not None:
            metrics.held_back.set(len(self._effective.pending_fields))
        faults = self.warnings()
        if self.controller is None or (source is None and not faults and not self._reported):
            return
        # A fault is repeated because events last an hour; that all is in force is reported once,
        # also by a new leader, because the one before may have reported a fault.
        is_time = bool(faults) and time.monotonic() >= self._next_report
        if (faults != self._reported or is_time) and self.controller.report_configuration(
            self._options.system_namespace, faults
        ):
            self._reported = faults
            self._next_report = time.monotonic() + _WARNING_SECONDS

    def _export_cache_metrics(self) -> None:
        cache, informers = self._metrics.cache, self.informers
        for kind in self._relists.keys() - informers.keys():
            del self._relists[kind]  # a cache that comes again begins with no list
        for kind, informer in informers.items():
            cache.synced.labels(kind).set(int(informer.has_synced))
            cache.objects.labels(kind).set(len(informer))
            cache.relists.labels(kind).inc(informer.relists - self._relists.get(kind, 0))
            self._relists[kind] = informer.relists
            if informer.has_synced:
                cache.age_seconds.labels(kind).set(informer.last_event_age_seconds)


def trim_heap() -> None:
    """Give free pages of the C heap back to the system, where its library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _component(options: EngineOptions) -> str:
    if options.controller is None:
        return "webhook"
    return "all" if options.with_handlers else "controller"


def _wait_while(reasons: Callable[[], list[str]], seconds: float) -> list[str]:
    """Wait until there are no reasons to; return those that are left when time is up."""
    give_up = time.monotonic() + seconds
    while (found := reasons()) and time.monotonic() < give_up:
        time.sleep(0.005)
    return found


def _rejected(rejection: Rejection) -> str:
    since = datetime.fromtimestamp(rejection.since, UTC).isoformat(timespec="seconds")
    return f"configuration rejected since {since}, the one before stays: {rejection.error}"


def _is_following(informer: AnyInformer) -> bool:
    """Return whether a cache was filled and can go on: an outage that passes leaves it so.

    A kind that is no longer served, and credentials that are no longer taken, do not pass by
    themselves, and nothing can be decided or written by then.
    """
    is_lost = isinstance(informer.last_error, (NotFoundError, UnauthorizedError))
    return informer.has_synced and not is_lost


def _not_listed(name: str, informer: AnyInformer) -> str:
    error = informer.last_error
    if error is None:
        return f"{name} have not been listed yet"
    if name == QUOTA_LEDGERS.plural and isinstance(error, NotFoundError):
        return f"the CustomResourceDefinition {QUOTA_LEDGERS.resource} is not installed"
    return f"{name} cannot be listed: {error}"


def _forget_deleted_namespace(caches: SharedCaches, change: Change[bool]) -> None:
    if change.type == "DELETED":
        caches.ledgers.forget(change.key)
        caches.quotas.forget(change.key)


def _stats(metrics: Metrics) -> ReserverStats:
    def batch_written(claims: int) -> None:
        metrics.ledger.writes.labels("written").inc()
        metrics.ledger.batch_size.observe(claims)

    def conflicted() -> None:
        metrics.ledger.writes.labels("conflict").inc()

    return ReserverStats(batch_written, conflicted, metrics.ledger.claim_wait.observe)
