"""Close the emergency: binds are guarded again, by a new count.

A ledger that was counted before, or while no bind was guarded, may lack pods that were bound
since. So none of them is decided by again:

1. The ledgers of opted-in namespaces are deleted. Without a ledger a bind is answered 429, and the
   controller makes a new one only after the longest time of a request. Then quotas of several
   namespaces are marked incomplete: one that has no ledger to wait for, as it is new, would be
   admitted by what the deleted ones had counted.
2. The guards are asked again.
3. When every API server knows that, the first step is repeated, for ledgers that a controller has
   made since: a bind that passed unasked is then stored before the count that replaces them.
4. All else that is asked, the mark and the mask, and last the note since when. Where a step before
   did not succeed nothing is hidden again, as it would be charged by none, or by an old count.
5. From there on the new ledgers are waited for; nothing depends on it.

What is in use above hard is counted as it is: the quota admits nothing until there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from webhook.install.apply import InstallApi, delete
from webhook.install.emergency.switching import EmergencySwitch
from webhook.install.endpoint_probe import CannotProbeError, Namespaces, probing
from webhook.install.endpoint_switch import probed_client
from webhook.jsonfields.fields import InvalidFieldError, mapping, sequence
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    QUOTA_LEDGERS,
    ApiError,
    ClusterApi,
    NotFoundError,
    Object,
)
from webhook.kube.metadata import object_name
from webhook.operations.emergency_state import GUARDS, OTHERS
from webhook.operations.namespaces_at_once import NO_ANSWER, in_each
from webhook.operations.native_enforcement import OverQuota
from webhook.operations.retry import CONFLICTS, PASSING, Report, RetryPolicy, silent
from webhook.quota.amounts.resources import exceeding, mask
from webhook.quota.ledger.ledger_codec import counter
from webhook.state.ledger_store import LEDGER_NAME, read_ledger
from webhook.state.well_known import BIND_ENTRY

_NO_GUARD: Final = f"{GUARDS[0].kind} {GUARDS[1]} is not there, or has no entry {BIND_ENTRY}"


@dataclass(frozen=True, slots=True)
class Counted:
    """One namespace after its guards are back."""

    namespace: str
    missing: tuple[str, ...] = ()
    """What is not counted or not hidden yet; it comes by itself."""
    over: tuple[OverQuota, ...] = ()
    """Quotas of which more is used than they allow, as the ledger counts."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Result of closing the emergency."""

    writes: int = 0
    """Registrations and bindings that were changed."""
    recounted: int = 0
    """Ledgers that were deleted, to be counted anew."""
    problems: tuple[str, ...] = ()


def unreached_reason(api: InstallApi, namespaces: Sequence[str], patience: RetryPolicy) -> str:
    """Return why the API server does not reach the webhook; empty where it does.

    It is asked by a registration that is there only for that: the guards are not asked now.

    Raises:
        ApiError: The API server does not answer.
    """
    client = _guard(EmergencySwitch(api, silent, patience).find(*GUARDS))
    if client is None:
        return _NO_GUARD
    if not namespaces:
        return ""
    try:
        with probing(api, probed_client(client), lambda: namespaces) as probe:
            return probe.settled_obstacle(patience)
    except CannotProbeError as err:
        return str(err)


def close_emergency(
    api: ClusterApi,
    namespaces: Namespaces,
    report: Report,
    *,
    patience: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
) -> Closed:
    """Close the emergency; run again, it goes on, and begins the recount anew.

    Args:
        namespaces: Returns those that have opted in by now: until the guards are asked there may be
            more.
        report: Receives a line for each write.
        patience: How long to go on with one thing.

    Raises:
        ApiError: The API server does not answer. What was done stays done.
    """
    switch = EmergencySwitch(api, report, patience)
    deleted: set[str] = set()
    problems = _uncount(api, namespaces(), deleted, report, patience)
    if problems:
        return Closed(problems=problems)  # the guards would decide by what is left
    switch.close(*GUARDS)
    if not switch.problems and _guard(switch.find(*GUARDS)) is None:
        switch.problems.append(_NO_GUARD)
    if switch.problems:
        return Closed(switch.writes, len(deleted), tuple(switch.problems))
    patience.begin().wait_for_caches()  # the guards, until every API server asks them
    problems = _uncount(api, namespaces(), deleted, report, patience)
    if problems:
        return Closed(switch.writes, len(deleted), problems)
    for place in (*OTHERS, *reversed(switch.bindings())):
        switch.close(*place)
    if not switch.problems:
        switch.forget(*GUARDS)
    return Closed(switch.writes, len(deleted), tuple(switch.problems))


def wait_for_counts(
    api: ClusterApi,
    namespaces: Sequence[str],
    still_missing: Callable[[str], tuple[str, ...]],
    report: Report,
    *,
    patience: RetryPolicy,
) -> tuple[Counted, ...]:
    """Wait until every namespace is counted and masked again.

    Args:
        still_missing: Returns what a namespace lacks.
        patience: How long to wait for each of them.

    Raises:
        ApiError: The API server does not answer.
    """

    def one(namespace: str, patience: RetryPolicy) -> Counted:
        wait = patience.begin()
        missing = wait.retry(lambda: still_missing(namespace))
        while missing and wait.pause():
            missing = wait.retry(lambda: still_missing(namespace))
        return Counted(namespace, missing, _over(api, namespace))

    done = in_each(namespaces, one, patience=patience, report=report)
    done.check_ended()
    return tuple(each.value or Counted(each.name, (each.why,)) for each in done.each)


def _uncount(
    api: ClusterApi,
    namespaces: Sequence[str],
    deleted: set[str],
    report: Report,
    patience: RetryPolicy,
) -> tuple[str, ...]:
    """Have everything counted anew; return what may still be decided by an old count, and why.

    All quotas of several namespaces are written, also those that are incomplete: a leader may be
    about to mark one complete by the ledgers that were there a moment ago.
    """
    problems: list[str] = []

    def is_done(step: Callable[[], object], place: str, result: str, fault: str) -> bool:
        try:
            step()
        except NotFoundError:
            return False
        except (ApiError, InvalidFieldError) as err:
            if isinstance(err, NO_ANSWER):
                raise
            problems.append(f"{place}: {fault}: {err}")
            return False
        report(f"{place}: {result}")
        return True

    remove = partial(delete, api, QUOTA_LEDGERS, LEDGER_NAME, patience=patience)
    for namespace in namespaces:
        result, fault = "its ledger is deleted, and counted anew", "its ledger cannot be deleted"
        if is_done(partial(remove, namespace=namespace), namespace, result, fault):
            deleted.add(namespace)
    for name in () if problems else _cluster_quotas(api, patience):
        mark = partial(_mark_incomplete, api, name)
        is_done(
            partial(patience.begin().retry, mark, passing=(*PASSING, *CONFLICTS)),
            f"{CLUSTER_DEFERRED_QUOTAS.kind} {name}",
            "its namespaces are counted anew",
            "it cannot be marked incomplete",
        )
    return tuple(problems)


def _mark_incomplete(api: ClusterApi, name: str) -> None:
    """Write the status of a quota without the claim to be complete, whatever else it says."""
    found = api.get(CLUSTER_DEFERRED_QUOTAS, name)
    status = mapping(found.get("status"), "status")
    left = {key: value for key, value in status.items() if key != "observed"}
    try:
        serial = counter(status, "serial", "status") + 1
    except InvalidFieldError:
        serial = 1  # a status that was damaged must not keep the guards away
    api.update_status(CLUSTER_DEFERRED_QUOTAS, {**found, "status": {**left, "serial": serial}})


def _cluster_quotas(api: ClusterApi, patience: RetryPolicy) -> list[str]:
    try:
        found = patience.begin().retry(lambda: api.list(CLUSTER_DEFERRED_QUOTAS))
    except NotFoundError:
        return []  # their definition is not installed
    return [object_name(one) for one in found.items]


def _over(api: ClusterApi, namespace: str) -> tuple[OverQuota, ...]:
    with suppress(NotFoundError, InvalidFieldError):
        ledger = read_ledger(api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)).ledger
        accounts = {} if ledger is None else ledger.accounts
        found = {
            name: (one, exceeding(one.used, one.hard)) for name, one in sorted(accounts.items())
        }
        return tuple(
            OverQuota(name, mask(one.hard, keys), mask(one.used, keys))
            for name, (one, keys) in found.items()
            if keys
        )
    return ()


def _guard(registration: Object | None) -> Object | None:
    entries = () if registration is None else sequence(registration.get("webhooks"), "webhooks")
    for each in entries:
        entry = mapping(each, "webhooks")
        if entry.get("name") == BIND_ENTRY:
            return mapping(entry.get("clientConfig"), "clientConfig")
    return None
