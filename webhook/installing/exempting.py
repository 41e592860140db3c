"""Exempt a namespace that is opted in: its quotas are the API server's before the guard goes.

The mask leaves it out first, the controller completes the status of its quotas by the new
configuration, and only then the registrations may leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from webhook.cluster.api import (
    NAMESPACES,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ClusterApi,
    NotFoundError,
)
from webhook.cluster.kinds import NAMESPACE_NAME_LABEL
from webhook.installing.kustomizations import InstallError
from webhook.operations.patience import Patience, Report
from webhook.operations.reading import parted, read_quota
from webhook.quota.deferral import is_excluded
from webhook.quota.native_status import incomplete_keys
from webhook.quota.objects import ResourceQuota
from webhook.quota.reading import Node
from webhook.state.label_selectors import LabelSelector
from webhook.state.names import BIND_ENTRY, DEFERRED_MODE, MODE_LABEL, REGISTRATION


def wait_until_enforced(
    api: ClusterApi, exempt: Set[str], patience: Patience | None, report: Report
) -> None:
    """Wait until the API server enforces the quotas of namespaces that the guard will leave out.

    Args:
        api: The API server.
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
    while left := wait.persist(lambda: _incomplete(api, namespaces)):
        if not wait.pause():
            raise InstallError(
                f"{', '.join(left)}: the controller has not completed the status; the namespace"
                " stays guarded. Does every process run with the new configuration?"
                f" gave up after {patience.seconds:g} s"
            )


def _newly_exempt(api: ClusterApi, exempt: Iterable[str]) -> list[str]:
    """Return the opted-in namespaces to be exempt that the guard still selects."""
    try:
        entries = Node(api.get(VALIDATING_WEBHOOKS, REGISTRATION)).children("webhooks")
    except NotFoundError:
        return []
    guards = [
        LabelSelector.read(entry.child("namespaceSelector"))
        for entry in entries
        if entry.text("name") == BIND_ENTRY
    ]
    label = f"{MODE_LABEL}={DEFERRED_MODE}"
    found = api.list(NAMESPACES, label_selector=label).items
    metadata = [Node(raw).child("metadata") for raw in found]
    opted_in = {each.text("name"): each.string_map("labels") for each in metadata}
    return sorted(
        name
        for name in opted_in.keys() & set(exempt)
        if any(one.selects({**opted_in[name], NAMESPACE_NAME_LABEL: name}) for one in guards)
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
