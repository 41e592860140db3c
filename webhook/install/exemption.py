"""Exempt a namespace that is opted in, or defer a resource no more: the API server enforces first.

The mask leaves the namespace or the resource out first, the controller completes the status of the
quotas by the new configuration, and only then the registrations may: what they leave out is not
charged any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

from webhook.controllers.mask.webhook_registration import registered_resources
from webhook.install.kustomizations import InstallError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    ALL,
    NAMESPACES,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ClusterApi,
    ListOptions,
    find_object,
)
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.operations.names import OPTED_IN
from webhook.operations.reading import parted, read_all, read_quota
from webhook.operations.retry import Report, RetryPolicy
from webhook.quota.charging.deferral import is_excluded
from webhook.quota.charging.scopes import is_evaluable
from webhook.quota.charging.status_mask import incomplete_keys
from webhook.quota.objects.model import ResourceQuota
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import BIND_ENTRY, REGISTRATION

_NOT_EVALUABLE: Final = (
    " (its scopes cannot be evaluated: mend or delete it, or try again in five minutes, when the"
    " API server's quota controller has completed it)"
)


def dropped_resources(api: ClusterApi, wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the resources that the registration names as deferred and that are not wanted.

    Raises:
        ApiError: The API server does not answer.
    """
    registration = find_object(api, VALIDATING_WEBHOOKS, REGISTRATION) or {}
    registered = registered_resources(registration) or ()
    return tuple(sorted(set(registered) - set(wanted)))


def wait_until_enforced(
    api: ClusterApi,
    exempt: Set[str],
    dropped: Set[str],
    patience: RetryPolicy | None,
    report: Report,
) -> None:
    """Wait until the API server enforces what will not be charged any more.

    Args:
        exempt: Namespaces that the new configuration exempts.
        dropped: Resources that it does not defer any more.
        patience: How long to wait; None is not at all.
        report: Takes a line about what is waited for.

    Raises:
        InstallError: Some are not complete in time; the guard stays.
        ApiError: The API server does not answer.
    """
    guarded = _guarded(api)
    namespaces = [name for name in guarded if name in exempt]
    limits: dict[str, Set[str] | None] = dict.fromkeys(guarded, dropped) if dropped else {}
    limits.update(dict.fromkeys(namespaces))

    def incomplete() -> list[str]:
        return _incomplete(api, limits)

    if not incomplete():
        return
    what = ", ".join((*namespaces, *sorted(dropped)))
    if patience is None:
        raise InstallError(
            f"{what}: is to be exempt, or not deferred any more, and quotas are still deferred; it"
            " stays guarded: run this again without --no-wait"
        )
    report(f"{what}: waiting until the API server enforces the quotas")
    wait = patience.begin()
    while left := wait.retry(incomplete):
        if not wait.pause():
            raise InstallError(
                f"{', '.join(left)}: the controller has not completed the status; {what} stays"
                " guarded. Does every process run with the new configuration?"
                f" gave up after {patience.seconds:g} s"
            )
    wait.wait_for_caches()  # the statuses, until every API server knows them


def _guarded(api: ClusterApi) -> list[str]:
    """Return the opted-in namespaces that the guard selects."""
    registration = find_object(api, VALIDATING_WEBHOOKS, REGISTRATION)
    if registration is None:
        return []
    guards = [
        WebhookSelector.read(entry.child("namespaceSelector"))
        for entry in FieldReader(registration).children("webhooks")
        if entry.text("name") == BIND_ENTRY
    ]
    found = api.list(NAMESPACES, OPTED_IN).items
    metadata = [FieldReader(raw).child("metadata") for raw in found]
    opted_in = {each.text("name"): each.string_map("labels") for each in metadata}
    return sorted(
        name
        for name in opted_in
        if any(one.matches({**opted_in[name], NAMESPACE_NAME_LABEL: name}) for one in guards)
    )


def _incomplete(api: ClusterApi, limits: Mapping[str, Set[str] | None]) -> list[str]:
    """Return the quotas of namespaces of whose limits the API server does not enforce all.

    Args:
        limits: Namespace → the limits that count there; None is all.
    """
    if not limits:
        return []
    # one list, however many there are
    options = ListOptions(namespace=next(iter(limits))) if len(limits) == 1 else ALL
    quotas, _ = parted(read_all(api, RESOURCE_QUOTAS, read_quota, options), ResourceQuota)
    return [
        f"ResourceQuota {each.namespace}/{each.name}"
        + ("" if is_evaluable(each) else _NOT_EVALUABLE)
        for each in quotas
        if each.namespace in limits and _is_incomplete(each, limits[each.namespace])
    ]


def _is_incomplete(quota: ResourceQuota, resources: Set[str] | None) -> bool:
    missing = incomplete_keys(quota)
    counts = bool(missing) if resources is None else not resources.isdisjoint(missing)
    return counts and not is_excluded(quota)
