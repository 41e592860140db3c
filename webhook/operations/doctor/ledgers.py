"""Whether the ledgers agree with the pods.

A ledger changes all the time, so it is read before and after the pods, and the two are compared
only if it did not change in between. Many namespaces are read at once, and then each one alone
whose ledger changed meanwhile. A difference may be about to be corrected, so it is reported only if
a second look finds it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError, NewerFormatError
from webhook.kube.api import QUOTA_LEDGERS, RESOURCE_QUOTAS, VALIDATING_WEBHOOKS, Object
from webhook.operations.counting import Taken, taken_at_bind
from webhook.operations.doctor.check_context import CONTROLLER_LOG, CheckContext, Namespace
from webhook.operations.doctor.errors import NoRightError, NotInSnapshotError
from webhook.operations.findings import Finding, Subject, error, information, warning
from webhook.operations.reading import guard_uid_of
from webhook.quota.amounts.resources import add, exceeding, mask, render, total_of
from webhook.quota.charging.deferral import NamespaceQuotas
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.ledger.ledger import (
    JUST_REGISTERED,
    Account,
    Ledger,
    Reservation,
    check_observed,
)
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.objects.quota_bounds import counted_quotas
from webhook.state.ledger_store import LEDGER_NAME, LedgerVersion, read_ledger
from webhook.state.well_known import LEADER_LEASE, REGISTRATION

_ATTEMPTS: Final = 3
_Settled: TypeAlias = Sequence[LedgerVersion | InvalidFieldError]
"""The ledger of a namespace, or why it cannot be read; empty where there is none."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A namespace at one moment."""

    version: LedgerVersion | None
    """Its ledger, the same before and after the rest was read."""
    quotas: NamespaceQuotas
    pods: tuple[Pod, ...]


def ledgers(scene: CheckContext) -> Iterator[Finding]:
    """Judge the ledger of every namespace that has opted in."""
    suspects: list[tuple[Namespace, dict[str, Finding], _Look]] = []
    guard_uid = _guard_uid(scene)
    for namespace, look in _looks(scene, scene.deferred_namespaces()):
        if isinstance(look, Finding):
            yield look
            continue
        found = dict(_judged(namespace.name, look, guard_uid, _recount(scene, namespace.name)))
        if found or _reservations(look):
            suspects.append((namespace, found, look))
    if not suspects:
        return
    scene.pause()
    scene.objects(RESOURCE_QUOTAS, again=True)
    scene.cluster_quotas(again=True)
    guard_uid = _guard_uid(scene)
    looks = _looks(scene, [namespace for namespace, _, _ in suspects])
    for (namespace, second), (_, before, first) in zip(looks, suspects, strict=True):
        if isinstance(second, Finding):
            yield second
            continue
        judged = _judged(namespace.name, second, guard_uid, _recount(scene, namespace.name))
        yield from (one for key, one in judged if key in before)
        yield from _old_reservations(scene, namespace.name, first, second)


def _looks(
    scene: CheckContext, namespaces: Sequence[Namespace]
) -> Iterator[tuple[Namespace, _Look | Finding]]:
    """Look at each of some namespaces."""
    settled = scene.settled_ledgers([one.name for one in namespaces], _readable)
    for namespace in namespaces:
        yield namespace, _look(scene, namespace, settled.pop(namespace.name, None))


def _look(scene: CheckContext, where: Namespace, settled: _Settled | None) -> _Look | Finding:
    """Read a namespace while its ledger stays the same, or say why that cannot be.

    `settled` is its ledger if it and the pods have been read so.
    """
    namespace = where.name
    for attempt in range(_ATTEMPTS):
        try:
            before = _ledger(scene, namespace, settled)
            own = counted_quotas(scene.quotas(namespace, again=attempt > 0))
            if attempt:
                scene.cluster_quotas(again=True)
            chosen = scene.settings.deferred_of((*own, *scene.shared_by(where)))
            every = scene.pods(namespace, again=settled is None)
            pods = tuple(each for each in every if isinstance(each, Pod))
            after = _ledger(scene, namespace, settled)
        except NewerFormatError as err:
            return information(
                "ledger.newer",
                _subject(namespace),
                f"is of a newer release than this command, so it is not compared: {err}",
                "Use the doctor of the newest release that runs.",
            )
        except InvalidFieldError as err:
            return error(
                "ledger.unreadable",
                _subject(namespace),
                f"cannot be read, so nothing is admitted: {err}",
                _recount(scene, namespace),
            )
        if _version(before) == _version(after):
            return _Look(after, chosen, pods)
    return information(
        "ledger.busy",
        _subject(namespace),
        "changes too often to be compared with the pods",
        "Try again when fewer pods are bound at a time.",
    )


def _readable(raw: Object) -> LedgerVersion | InvalidFieldError:
    try:
        return read_ledger(raw)
    except InvalidFieldError as err:
        return err


def _ledger(scene: CheckContext, namespace: str, settled: _Settled | None) -> LedgerVersion | None:
    if settled is None:
        raw = scene.find(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        return None if raw is None else read_ledger(raw)
    found = next(iter(settled), None)
    if isinstance(found, InvalidFieldError):
        raise found
    return found


def _version(version: LedgerVersion | None) -> tuple[str, int]:
    return ("", 0) if version is None else (version.uid, version.resource_version)


def _guard_uid(scene: CheckContext) -> str | None:
    """Return the uid of the guard's registration, see `check_observed`."""
    try:
        return guard_uid_of(scene.find(VALIDATING_WEBHOOKS, REGISTRATION))
    except (NoRightError, NotInSnapshotError):
        return None  # the check of the registrations says so


def _subject(namespace: str) -> Subject:
    return Subject(QUOTA_LEDGERS.kind, LEDGER_NAME, namespace)


def _recount(scene: CheckContext, namespace: str) -> str:
    """Return what to do where nothing is counted. To delete the ledger helps with nothing."""
    settings = scene.settings
    place = f"-n {settings.system_namespace}"
    return (
        f"1. See that a controller leads: kubectl get lease {LEADER_LEASE} {place}; mend what other"
        " findings say of it, and of definitions. 2. It counts anew what was deleted, emptied or"
        f" made unreadable after {settings.expire_seconds:g} seconds, and so does each that begins"
        f" to lead meanwhile. 3. If it does not: {CONTROLLER_LOG} In the cluster: kubectl logs"
        f" {place} -l app.kubernetes.io/component=controller --tail=-1 | grep '\"{namespace}\"'"
    )


def _judged(
    namespace: str, look: _Look, guard_uid: str | None, recount: str
) -> Iterator[tuple[str, Finding]]:
    """Return what is wrong, each with a key by which it is known at the next look.

    `recount` is what to do where nothing is counted.
    """
    ledger = _counted(look)
    if ledger is None:
        if look.quotas.quotas:
            uncounted = _uncounted(_subject(namespace), look, recount)
            yield uncounted.id, uncounted
        return
    differing = sorted({one.name for one in ledger.observed ^ look.quotas.observed})
    if differing:
        yield (
            "outdated",
            error(
                "ledger.outdated",
                _subject(namespace),
                f"was counted for other versions of quota {', '.join(differing)}: no pod can be"
                " bound",
                "Is the configuration the same everywhere, and the one of --config? "
                + CONTROLLER_LOG,
            ),
        )
    if check_observed(ledger, ledger.observed, guard_uid=guard_uid) is JUST_REGISTERED:
        message = (
            "was counted under another registration of the guard than the present one: it decides"
            " nothing until it is counted anew"
        )
        yield "former-guard", error("ledger.former-guard", _subject(namespace), message, recount)
    for condition in ledger.conditions:
        if condition.status == "False":
            message = f"condition {condition.type} is False: {condition.message}"
            remedy = "Correct what it names; the controller then counts it."
            yield (
                f"condition {condition.type}",
                error("ledger.condition", _subject(namespace), message, remedy),
            )
    for account, taken in _compared(look):
        over = _over(namespace, account)
        if over is not None:
            yield f"over {account.observed.name}", over
        for found in _drift(namespace, account, taken):
            yield f"{found.id} {account.observed.name}", found


def _uncounted(subject: Subject, look: _Look, recount: str) -> Finding:
    if look.version is None:
        message = "does not exist: no pod can be bound in this namespace"
        return error("ledger.missing", subject, message, recount)
    message = "has not been counted yet: no pod can be bound in this namespace"
    return error("ledger.uncounted", subject, message, recount)


def _over(namespace: str, account: Account) -> Finding | None:
    """Return the finding of a quota of which more is used and reserved than it allows."""
    held = mask(add(account.used, account.reserved), account.hard)
    over = exceeding(held, account.hard)
    if not over or account.observed.name.startswith(SHARED_PREFIX):
        return None  # what namespaces share has a check of its own
    amounts = {"used": account.used, "reserved": account.reserved, "limited": account.hard}
    told = [
        f"{word} {render(part)}" for word, all_ in amounts.items() if (part := mask(all_, over))
    ]
    return warning(
        "quota.over",
        Subject(RESOURCE_QUOTAS.kind, account.observed.name, namespace),
        f"is over its limit: {', '.join(told)}",
        "No pod that it concerns gets a node until enough of them have ended: it was lowered below"
        " what is used, or pods got their nodes before it was counted. Raise it, or delete pods.",
    )


def _drift(namespace: str, account: Account, taken: Taken) -> Iterator[Finding]:
    """Compare what is counted for one quota with what its pods take."""
    name = account.observed.name
    held = mask(add(account.used, account.reserved), account.hard)
    lacking = exceeding(taken.least, held)
    if lacking:
        yield error(
            "ledger.under-counted",
            _subject(namespace),
            f"quota {name}: assigned pods take {render(mask(taken.least, lacking))}, and used +"
            f" reserved is {render(mask(held, lacking))}: more can be admitted than it allows",
            "Was the ledger edited? " + CONTROLLER_LOG,
        )
    above = exceeding(mask(account.used, account.hard), taken.most)
    if above:
        yield warning(
            "ledger.over-counted",
            _subject(namespace),
            f"quota {name}: used is {render(mask(account.used, above))}, and assigned pods take"
            f" {render(mask(taken.most, above))}",
            CONTROLLER_LOG,
        )


def _counted(look: _Look) -> Ledger | None:
    return None if look.version is None else look.version.ledger


def _compared(look: _Look) -> Iterator[tuple[Account, Taken]]:
    """Return each account that was counted for the quota as it is, and what pods take of it."""
    ledger = _counted(look)
    for quota in look.quotas.quotas:
        account = None if ledger is None else ledger.accounts.get(quota.name)
        if account is None or account.observed != quota.observed:
            continue
        try:
            yield account, taken_at_bind(quota, look.pods)
        except ScopeError:
            continue  # the check of quotas says so


def _reservations(look: _Look) -> dict[str, Reservation]:
    ledger = _counted(look)
    return {} if ledger is None else dict(ledger.reservations)


def _old_reservations(
    scene: CheckContext, namespace: str, first: _Look, second: _Look
) -> Iterator[Finding]:
    """Look for reservations that should have been folded or dropped between two looks."""
    settings = scene.settings
    is_long = not settings.is_offline and settings.pause_seconds > 2 * settings.expire_seconds
    assigned = {pod.uid for pod in second.pods if pod.is_assigned}
    before = _reservations(first)
    old = [
        one
        for uid, one in _reservations(second).items()
        if uid in before
        and before[uid].serial == one.serial
        and ((uid in assigned and not one.base_version) or is_long)
    ]
    if old:
        yield warning(
            "ledger.old-reservations",
            _subject(namespace),
            f"{'1 reservation is' if len(old) == 1 else f'{len(old)} reservations are'} not settled"
            f"{_held(old)}",
            CONTROLLER_LOG,
            tuple(sorted(one.pod for one in old)),
        )


def _held(reservations: Iterable[Reservation]) -> str:
    total = total_of(one.usage for one in reservations)
    return f": {render(total)} is held" if total else ""
