"""Exempt a namespace that is opted in: its quotas are the API server's before the guard goes.

The mask leaves it out first, the controller completes the status of its quotas by the new
configuration, and only then the registrations may leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from webhook.install.kustomizations import InstallError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    NAMESPACES,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ClusterApi,
    NotFoundError,
)
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.operations.reading import parted, read_quota
from webhook.operations.retry import Report, RetryPolicy
from webhook.quota.charging.deferral import is_excluded
from webhook.quota.charging.status_mask import incomplete_keys
from webhook.quota.objects.model import ResourceQuota
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import BIND_ENTRY, DEFERRED_MODE, MODE_LABEL, REGISTRATION


def wait_until_enforced(
    api: ClusterApi, exempt: Set[str], patience: RetryPolicy | None, report: Report
) -> None:
    """Wait until the API server enforces the quotas of namespaces that the guard will leave out.

    Args:
        exempt: Namespaces that the new configuration exempts.
        patience: How long to wait; None is not at all.
        report: Takes a line about what is waited for.

    Raises:
        InstallError: Some are not complete in time; the guard stays.
        ApiError: The API server does not answer.
    """
    namespaces = _newly_exempt(api, exempt)
    if not namespaces or not _incomplete(api, namespaces):
        return
    if patience is None:
        raise InstallError(
            f"{', '.join(namespaces)}: is to be exempt, and its quotas are still deferred; it stays"
            " guarded: run this again without --no-wait"
        )
    report(f"{', '.join(namespaces)}: waiting until the API server enforces its quotas")
    wait = patience.begin()
    while left := wait.retry(lambda: _incomplete(api, namespaces)):
        if not wait.pause():
            raise InstallError(
                f"{', '.join(left)}: the controller has not completed the status; the namespace"
                " stays guarded. Does every process run with the new configuration?"
                f" gave up after {patience.seconds:g} s"
            )


def _newly_exempt(api: ClusterApi, exempt: Iterable[str]) -> list[str]:
    """Return the opted-in namespaces to be exempt that the guard still selects."""
    try:
        entries = FieldReader(api.get(VALIDATING_WEBHOOKS, REGISTRATION)).children("webhooks")
    except NotFoundError:
        return []
    guards = [
        WebhookSelector.read(entry.child("namespaceSelector"))
        for entry in entries
        if entry.text("name") == BIND_ENTRY
    ]
    label = f"{MODE_LABEL}={DEFERRED_MODE}"
    found = api.list(NAMESPACES, label_selector=label).items
    metadata = [FieldReader(raw).child("metadata") for raw in found]
    opted_in = {each.text("name"): each.string_map("labels") for each in metadata}
    return sorted(
        name
        for name in opted_in.keys() & set(exempt)
        if any(one.matches({**opted_in[name], NAMESPACE_NAME_LABEL: name}) for one in guards)
    )


def _incomplete(api: ClusterApi, namespaces: Iterable[str]) -> list[str]:
    """Return the quotas of namespaces of whose limits the API server does not enforce all."""
    raws = [raw for name in namespaces for raw in api.list(RESOURCE_QUOTAS, namespace=name).items]
    quotas, _ = parted(map(read_quota, raws), ResourceQuota)
    return [
        f"ResourceQuota {each.namespace}/{each.name}"
        for each in quotas
        if incomplete_keys(each) and not is_excluded(each)
    ]
