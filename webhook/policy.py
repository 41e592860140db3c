"""The configuration, compiled once into the rules that handlers and controllers decide by.

The configuration package knows only plain values; what the core has to judge in them, it judges
here, so that a rule which cannot be evaluated is an error at start and never at a request.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import assert_never

from webhook.config import (
    Configuration,
    Coverage,
    JobRuleSettings,
    MirrorPods,
    MustSpecify,
    QuotaUpdate,
    TerminatingPods,
)
from webhook.config.settings import PlainObject
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.charging.coverage import CoverageRules
from webhook.quota.charging.limited_resources import LimitedResource
from webhook.quota.charging.scope_validation import read_legal_expressions
from webhook.quota.jobs import JobGate
from webhook.quota.jobs.operators import label_selector_errors
from webhook.quota.jobs.policy import Growth, JobRule, Users, Verdict
from webhook.quota.objects.label_selectors import LabelSelector, read_label_selector
from webhook.quota.objects.model import ScopeExpression
from webhook.quota.objects.names import DEFERRED_KEYS, is_deferrable
from webhook.quota.queue.queued_pods import QueueingStrategy, QueuePolicy
from webhook.state.well_known import DEFAULT_NAMESPACE, own_users


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules of handlers and controllers; `Policy()` is what an empty configuration means."""

    deferred_keys: frozenset[str] = DEFERRED_KEYS
    """Quota keys that are charged at the bind."""
    must_specify: MustSpecify = MustSpecify.CREATE
    """When containers have to name what a quota limits."""
    enforces_mirror_pods: bool = False
    """Whether mirror pods are refused like others."""
    limited_resources: tuple[LimitedResource, ...] = ()
    """What may be used only where a quota limits it."""
    priority_coverage: tuple[ScopeExpression, ...] = ()
    """Which pods need a quota with a PriorityClass scope."""
    exempt_namespaces: frozenset[str] = field(
        default_factory=lambda: Configuration().exempt_namespaces | {DEFAULT_NAMESPACE}
    )
    """Never touched; the namespace of the installation is one of them."""
    unmasked_namespaces: frozenset[str] = field(
        default_factory=lambda: Configuration().exempt_namespaces | {DEFAULT_NAMESPACE}
    )
    """Where nothing is hidden of quotas: those that are exempt, and those that will be when the API
    server enforces their quotas and the guard leaves them out."""
    unmasked_keys: frozenset[str] = frozenset()
    """Resources that are charged and nowhere hidden: those that the registration does not name yet,
    and those that will not be deferred any more when the API server enforces them and the
    registration does not name them."""
    own_users: frozenset[str] = own_users(DEFAULT_NAMESPACE)
    """User names of the processes of this installation."""
    job_gates: frozenset[str] = frozenset(JobGate)
    """Feature gates of the API server that are on, or not known."""
    unsure_job_gates: frozenset[str] = frozenset()
    """Those that are not known."""
    jobs: tuple[JobRule, ...] = ()
    """What is allowed of which Jobs; the first that is about a Job decides."""
    ledger_seconds: float = 3.0
    """How long one request may try to reserve."""
    holds_terminating: bool = False
    """Pods that are stuck terminating are charged until they are gone."""

    @property
    def possible_job_gates(self) -> tuple[frozenset[str], ...]:
        """Every set of gates that may be on, the largest first."""
        found = [self.job_gates]
        for gate in sorted(self.unsure_job_gates):
            found += [each - {gate} for each in found]
        return tuple(found)


def check_configuration(configuration: Configuration) -> None:
    """Judge with the core what the configuration package cannot.

    Raises:
        InvalidFieldError: A rule cannot be evaluated; the error has its path.
    """
    compile_policy(configuration)


def compile_policy(
    configuration: Configuration,
    *,
    system_namespace: str = DEFAULT_NAMESPACE,
    given: Configuration | None = None,
    detected_gates: frozenset[str] = frozenset(JobGate),
    unknown_gates: frozenset[str] = frozenset(),
) -> Policy:
    """Read the rules.

    Args:
        configuration: The settings that are in force.
        system_namespace: Namespace of the installation.
        given: The settings as they were written, of which some may not be in force yet, with the
            resources that may be hidden. Nothing is hidden of what they exempt or do not defer.
            None if they are the same.
        detected_gates: The feature gates that the API server was found to have on, and those of
            which nothing could be found out.
        unknown_gates: The latter.

    Raises:
        InvalidFieldError: A rule cannot be evaluated; the error has its path.
    """
    given = given or configuration
    deferred_keys = DEFERRED_KEYS | _extended_keys(configuration.deferred_resources)
    return Policy(
        deferred_keys=deferred_keys,
        unmasked_keys=deferred_keys - DEFERRED_KEYS - set(given.deferred_resources),
        must_specify=configuration.must_specify,
        enforces_mirror_pods=configuration.mirror_pods is MirrorPods.ENFORCE,
        limited_resources=tuple(
            LimitedResource.from_object(entry, field=f"limitedResources[{index}]", strict=True)
            for index, entry in enumerate(configuration.limited_resources)
        ),
        priority_coverage=read_legal_expressions(
            configuration.require_quota_for_priority, "requireQuotaForPriority"
        ),
        exempt_namespaces=configuration.exempt_namespaces | {system_namespace},
        unmasked_namespaces=configuration.exempt_namespaces
        | given.exempt_namespaces
        | {system_namespace},
        own_users=own_users(system_namespace),
        job_gates=configuration.job_gates.enabled_of(detected_gates),
        unsure_job_gates=configuration.job_gates.unsure_of(unknown_gates),
        jobs=tuple(
            _job_rule(rule, f"jobs[{index}]") for index, rule in enumerate(configuration.jobs)
        ),
        ledger_seconds=float(configuration.timeouts.ledger_seconds),
        holds_terminating=configuration.terminating_pods is TerminatingPods.HOLD,
    )


def frozen_by(update: QuotaUpdate, selecting: Set[str]) -> Callable[[str], bool]:
    """Return which fields of a stored quota's spec have to stay.

    Args:
        selecting: The fields that say which pods a quota is about.
    """
    match update:
        case QuotaUpdate.ALLOW:
            return lambda _field: False
        case QuotaUpdate.SCOPES:
            return selecting.__contains__
        case QuotaUpdate.REJECT:
            return lambda _field: True
        case _:
            assert_never(update)


def _extended_keys(names: tuple[str, ...]) -> frozenset[str]:
    for index, name in enumerate(names):
        if name in DEFERRED_KEYS or not is_deferrable(name):
            raise InvalidFieldError(
                f"deferredResources[{index}]",
                f"must be the quota key of an extended resource, such as"
                f" requests.nvidia.com/gpu, not {name}",
            )
    return frozenset(names)


def _job_rule(settings: JobRuleSettings, field: str) -> JobRule:
    given = settings.resizers
    resizers = None
    if given is not None:
        resizers = Users(given.users, given.groups, given.service_accounts)
    return JobRule(
        namespaces=_selector(settings.namespaces, f"{field}.namespaces"),
        jobs=_selector(settings.selector, f"{field}.selector"),
        growth={resource: Growth(word) for resource, word in settings.growth.items()},
        shrink={resource: Verdict(word) for resource, word in settings.shrink.items()},
        claims=Verdict(settings.claims),
        template_metadata=Verdict(settings.template_metadata),
        resizers=resizers,
        replacement=Verdict(settings.pod_replacement_policy),
        terminating=Verdict(settings.terminating),
        never_fits=Verdict(settings.never_fits),
        unsuspend=Verdict(settings.unsuspend),
    )


def _selector(raw: PlainObject | None, field: str) -> LabelSelector:
    for error in label_selector_errors(raw, field):
        raise InvalidFieldError(error.field, error.detail)
    return read_label_selector(raw, field) or LabelSelector({})


def queue_policy(configuration: Configuration, policy: Policy) -> QueuePolicy:
    """Return how lines of waiting pods move."""
    is_platform = configuration.coverage is Coverage.PLATFORM
    return QueuePolicy(
        order=QueueingStrategy(configuration.queue.order),
        max_overtakes=configuration.queue.max_overtakes,
        max_wait_seconds=configuration.queue.max_wait_seconds,
        coverage=CoverageRules(
            policy.limited_resources,
            policy.priority_coverage,
            "platform" if is_platform else "matching",
        ),
        must_specify=policy.must_specify is not MustSpecify.OFF,
    )
