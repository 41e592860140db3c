"""Opt a namespace out.

The order matters. While the label is there the API server calls the webhook, which may gate every
new pod: if gates were removed first, new ones could be added meanwhile. So:

1. The label is removed. From then on nothing is gated, masked or charged in the namespace, and a
   webhook that is down or already uninstalled does not block the next steps. The entry that
   restricts who may remove gates may still deny that until every API server knows that the label is
   gone: it is tried again.
2. Our scheduling gate is removed from the pods that wait, until none is left. Nothing else does.
3. The status of the quotas is completed, so that the API server counts and enforces by itself.

Until step 3 is done, the API server admits pods without looking at compute resources, as it did
before: they are counted in step 3. Every step can be repeated, so after any failure all of them are
run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NAMESPACES, ClusterApi, ForbiddenError, ListOptions, NotFoundError
from webhook.kube.metadata import object_name
from webhook.operations.cluster_quotas import shared_quotas
from webhook.operations.gates import GatedPod, gated_pods, strip_gates
from webhook.operations.native_enforcement import OverQuota, over_quota, restore_statuses
from webhook.operations.reading import inhabitants
from webhook.operations.retry import Report, RetryPolicy, RetryTimer, silent
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, mask, subtract_non_negative
from webhook.quota.charging.denials import name_quota
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.charging.status_mask import incomplete_keys, native_count
from webhook.quota.objects.names import DERIVED_PREFIXES
from webhook.quota.shared.cluster_quotas import ledger_name
from webhook.state.well_known import FORMER_GATING_LABEL, GATING_LABEL, MODE_LABEL


@dataclass(frozen=True, slots=True)
class OptedOut:
    """Result of opting a namespace out, also of a dry run."""

    namespace: str
    exists: bool = True
    """There is such a namespace; nothing was to be done for one that is gone."""
    had_label: bool = False
    """It was opted in until now."""
    gates: int = 0
    """Scheduling gates that were removed."""
    restored: tuple[str, ...] = ()
    """Quotas whose status was completed."""
    over: tuple[OverQuota, ...] = ()
    """Quotas of which more is used now than they allow, as the API server counts. Pods that are
    there stay."""
    left: tuple[str, ...] = ()
    """Cluster quotas that the namespace shared, and elastic quotas with their pools, as messages
    name them: its pods are charged there no more, and what they held is free for the others."""
    problems: tuple[str, ...] = ()
    """What is not done yet, and why: run it again."""
    is_known: bool = True
    """The rest is known. It is not where the API server refused, or did not answer."""
    is_refused: bool = False
    """The API server refused for want of a right, without which nothing helps."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of the waiting pods of a namespace to a quota, and how much of it is free."""

    quota: str
    requested: ResourceList
    free: ResourceList


@dataclass(frozen=True, slots=True)
class Released:
    """The pods that opting a namespace out lets start, all at once, whatever its quotas allow."""

    namespace: str
    pods: int
    demands: tuple[Demand, ...] = ()


def to_be_released(api: ClusterApi, namespace: str) -> Released:
    """Return which pods would start if a namespace opted out now; writes nothing.

    Raises:
        ApiError: Its pods and quotas cannot be listed.
    """
    gated, _ = gated_pods(api, namespace)
    if not gated:
        return Released(namespace, 0)
    there = inhabitants(api, namespace)
    uids = {each.uid for each in gated}
    waiting = [pod for pod in there.pods if pod.uid in uids]
    assigned = [pod for pod in there.pods if pod.is_assigned]
    demands: list[Demand] = []
    for quota in there.quotas:
        try:
            used, wanted = (
                native_count(quota, pods, now=there.now) for pods in (assigned, waiting)
            )
        except ScopeError:
            continue
        # what the status hides is what is deferred
        keys = [key for key in incomplete_keys(quota) if wanted.get(key, ZERO) > ZERO]
        if keys:
            free = subtract_non_negative(mask(quota.hard, keys), mask(used, keys))
            demands.append(Demand(quota.name, mask(wanted, keys), free))
    return Released(namespace, len(gated), tuple(demands))


def opt_out(
    api: ClusterApi,
    namespace: str,
    *,
    report: Report = silent,
    patience: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    keeps_label: bool = False,
    forgets_gating: bool = False,
) -> OptedOut:
    """Opt a namespace out; to repeat it does no harm.

    Args:
        report: Receives progress.
        patience: How long to go on while new gated pods appear or the API server does not answer.
        keeps_label: Leave the label as it is. Only where nothing acts on it any more, because the
            mask and the webhooks that gate pods or guard the gates are uninstalled: a later
            installation finds the namespace again.
        forgets_gating: Remove the label that says how pods wait, too: nothing reads it any more.

    Raises:
        ApiError: The namespace cannot be changed, or pods and quotas cannot be listed. What was
            done until then stays done.
    """
    wait = patience.begin()
    left = wait.retry(lambda: _shared_by(api, namespace))
    gated = wait.retry(lambda: _gated_pods(api, namespace))
    try:
        had_label = _remove_label(api, namespace, wait, report, keeps_label=keeps_label)
        if forgets_gating:
            patch = {"metadata": {"labels": {GATING_LABEL: None, FORMER_GATING_LABEL: None}}}
            wait.retry(lambda: api.patch(NAMESPACES, namespace, patch))
    except NotFoundError:
        return OptedOut(namespace, exists=False)
    stripped = strip_gates(api, namespace, wait, report, before=gated)
    restored = restore_statuses(api, namespace, wait, report)
    return OptedOut(
        namespace,
        had_label=had_label,
        gates=stripped.removed,
        restored=restored.quotas,
        over=restored.over,
        left=left if had_label and not keeps_label else (),
        problems=(*stripped.problems, *restored.problems),
    )


def _gated_pods(api: ClusterApi, namespace: str) -> Sequence[GatedPod]:
    """Return the pods with our gate; none where they may not be listed, which is said later."""
    try:
        return gated_pods(api, namespace)[0]
    except ForbiddenError:
        return ()


def preview(api: ClusterApi, namespace: str) -> OptedOut:
    """Return what `opt_out` would do now; writes nothing.

    Raises:
        ApiError: The API server does not answer.
    """
    try:
        raw = api.get(NAMESPACES, namespace)
    except NotFoundError:
        return OptedOut(namespace, exists=False)
    labels = FieldReader(raw).child("metadata").string_map("labels")
    there = inhabitants(api, namespace)
    gated, odd = gated_pods(api, namespace)
    return OptedOut(
        namespace,
        had_label=MODE_LABEL in labels,
        gates=len(gated),
        restored=tuple(quota.name for quota in there.quotas if incomplete_keys(quota)),
        over=over_quota(there),
        left=_shared_by(api, namespace) if MODE_LABEL in labels else (),
        problems=tuple(dict.fromkeys((*there.unreadable, *odd))),
    )


def _shared_by(api: ClusterApi, namespace: str) -> tuple[str, ...]:
    """Return the cluster quotas of which a namespace holds a part; what cannot be read is left out.

    An elastic pool is named once, of which there may be several. Nothing depends on it, so a user
    who may not read them may still opt a namespace out.
    """
    try:
        shared = shared_quotas(api)
    except (ForbiddenError, InvalidFieldError):
        return ()
    found = [one.spec.name for one in shared if namespace in one.grants.namespaces]
    names = (
        name_quota(ledger_name(name)).text if name.startswith(DERIVED_PREFIXES) else name
        for name in found
    )
    return tuple(dict.fromkeys(names))


def opted_in_namespaces(api: ClusterApi) -> tuple[str, ...]:
    """Return the namespaces that have the label, whatever its value.

    Raises:
        ApiError: They cannot be listed.
    """
    found = api.list(NAMESPACES, ListOptions(label_selector=MODE_LABEL)).items
    return tuple(object_name(raw) for raw in found)


def _remove_label(
    api: ClusterApi, namespace: str, wait: RetryTimer, report: Report, *, keeps_label: bool
) -> bool:
    """Remove the label, whatever its value; return whether it was there."""
    raw = wait.retry(lambda: api.get(NAMESPACES, namespace))
    if MODE_LABEL not in FieldReader(raw).child("metadata").string_map("labels"):
        return False
    if keeps_label:
        return True
    patch = {"metadata": {"labels": {MODE_LABEL: None}}}
    wait.retry(lambda: api.patch(NAMESPACES, namespace, patch))
    report(f"{namespace}: the label {MODE_LABEL} is removed")
    return True
