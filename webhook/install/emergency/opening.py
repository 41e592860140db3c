"""Open the emergency: all binds pass, and the API server enforces quotas when pods are created.

1. The guards: from here on no bind is asked about, whether the webhook hangs, denies or is gone.
   The same write notes since when.
2. All else that is asked, and the mask: nothing is hidden or gated any more.
3. The status of every quota of opted-in namespaces is completed, with a count of its pods. Until
   then the API server admits pods without looking at compute resources.
4. Where that is asked for, our scheduling gate is taken from the pods that wait.

Nothing is deleted and no label of a namespace changes. Each step looks at what is there, so after
an interruption the whole of it is run again. A controller that runs finds that nothing is guarded,
hides nothing either, goes on to count, and to release pods within quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from webhook.install.emergency.switching import EmergencySwitch
from webhook.kube.api import NAMESPACES, ClusterApi
from webhook.kube.metadata import object_name
from webhook.operations.disable import preview
from webhook.operations.emergency_state import GUARDS, OTHERS, EmergencyState
from webhook.operations.gates import gated_pods, strip_gates
from webhook.operations.names import OPTED_IN
from webhook.operations.namespaces_at_once import in_each
from webhook.operations.native_enforcement import OverQuota, restore_statuses
from webhook.operations.retry import Report, RetryPolicy
from webhook.operations.server_time import server_time

_SOME_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Native:
    """Outcome of one namespace, also of a dry run."""

    namespace: str
    restored: tuple[str, ...] = ()
    """Quotas whose status was completed."""
    over: tuple[OverQuota, ...] = ()
    """Quotas of which more is used than they allow, as the API server counts."""
    waiting: int = 0
    """Pods that keep our scheduling gate."""
    released: int = 0
    """Pods that lost it."""
    problems: tuple[str, ...] = ()
    """What is not done, and why: run it again."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Result of opening the emergency, also of a dry run."""

    since: str
    writes: int = 0
    """Registrations and bindings that were changed."""
    namespaces: tuple[Native, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpeningPlan:
    """Plan of the opening, made by reads of the registrations and the namespaces only."""

    state: EmergencyState
    namespaces: tuple[str, ...]


def plan_opening(api: ClusterApi, patience: RetryPolicy, report: Report) -> OpeningPlan:
    """Return what there is to open; writes nothing.

    Raises:
        ApiError: The API server does not answer, or refuses the read.
    """
    state = EmergencySwitch(api, report, patience).state()
    return OpeningPlan(state, deferred_namespaces(api, patience))


def preview_namespace(api: ClusterApi, namespace: str, *, releases: bool) -> Native:
    """Return what opening would do in a namespace; writes nothing.

    Raises:
        ApiError: The API server does not answer.
    """
    found = preview(api, namespace)
    kept, released = (0, found.gates) if releases else (found.gates, 0)
    return Native(namespace, found.restored, found.over, kept, released, found.problems)


def open_emergency(
    api: ClusterApi,
    plan: OpeningPlan,
    report: Report,
    *,
    releases: bool = False,
    patience: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
) -> Opened:
    """Open the emergency; to repeat it does no harm, and finishes what was interrupted.

    Args:
        plan: What was found to be done.
        report: Receives a line for each write.
        releases: Whether pods that wait for quota lose our gate, and start whatever quotas allow.
        patience: How long to go on with one thing.

    Raises:
        ApiError: The API server does not answer. What was done stays done.
    """
    switch = EmergencySwitch(api, report, patience)
    since = plan.state.since or _now(api)
    switch.open(*GUARDS, since=since)
    for place in (*OTHERS, *switch.bindings()):
        switch.open(*place)

    def one(namespace: str, patience: RetryPolicy) -> Native:
        return _made_native(api, namespace, patience, report, releases=releases)

    done = in_each(plan.namespaces, one, patience=patience, report=report)
    done.check_ended()
    native = tuple(each.value or Native(each.name, problems=(each.why,)) for each in done.each)
    return Opened(since, switch.writes, native, tuple(switch.problems))


def deferred_namespaces(api: ClusterApi, patience: RetryPolicy) -> tuple[str, ...]:
    """Return the namespaces that have opted in, sorted.

    Raises:
        ApiError: They cannot be listed.
    """
    found = patience.begin().retry(lambda: api.list(NAMESPACES, OPTED_IN)).items
    return tuple(sorted(map(object_name, found)))


def _made_native(
    api: ClusterApi, namespace: str, patience: RetryPolicy, report: Report, *, releases: bool
) -> Native:
    wait = patience.begin()
    problems: Sequence[str] = ()
    released = 0
    if releases:
        stripped = strip_gates(api, namespace, wait, report)
        released, problems = stripped.removed, stripped.problems
    restored = restore_statuses(api, namespace, wait, report)
    waiting, _ = wait.retry(lambda: gated_pods(api, namespace))
    return Native(
        namespace,
        restored.quotas,
        restored.over,
        len(waiting),
        released,
        (*problems, *restored.problems),
    )


def _now(api: ClusterApi) -> str:
    """Return the time by the API server's clock, else by ours."""
    moment = server_time(api, _SOME_NAMESPACE) or datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
