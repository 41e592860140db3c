"""Health of controller and webhook, for `explain`: a fast look where all is well."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, timestamp
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import LEASES, ApiError, ForbiddenError, UnavailableError, find_object
from webhook.operations.doctor.check_context import CheckContext, Settings
from webhook.operations.doctor.errors import NoRightError, NotInSnapshotError
from webhook.operations.doctor.webhook_probe import answers
from webhook.operations.doctor.workloads import workloads
from webhook.operations.explain.session import Session
from webhook.operations.findings import Finding, Severity
from webhook.operations.leader import Holding, changed, holding_of
from webhook.quota.explaining.facts import Health, Part
from webhook.state.well_known import LEADER_LEASE

_UP: Final = Part(Health.UP)
_NO_LEASE: Final = Part(Health.UNKNOWN, "the snapshot has no Lease of the controller")
_NEVER_LED: Final = Part(Health.DOWN, "no controller has ever led")
_NOT_CALLED: Final = 'failed calling webhook "'
_OURS: Final = ".deferredquota.io"


def controller_part(session: Session, moment: datetime | None) -> Part:
    """Return whether a controller leads.

    Clocks may differ: a Lease that looks old is watched until it changes, before it counts as
    old. In a snapshot its age is taken at the newest moment in it.
    """
    try:
        held = _holding(session)
    except ForbiddenError:
        no_right = Part(Health.UNKNOWN, "no right to read the Lease of the controller")
        return _NO_LEASE if session.options.is_offline else no_right
    except InvalidFieldError as err:
        return Part(Health.UNKNOWN, f"the Lease of the controller cannot be read: {err}")
    if held is None:
        return _NO_LEASE if session.options.is_offline else _NEVER_LED
    since = f" since {held.renewed}" if held.renewed else ""
    if not held.holder:
        return Part(Health.DOWN, f"no controller leads{since}")
    is_alive = _is_fresh(held, moment) or (
        not session.options.is_offline and _is_renewed(session, held)
    )
    silent = f"the controller has not renewed its Lease{since}"
    return _UP if is_alive else Part(Health.DOWN, silent)


def _holding(session: Session) -> Holding | None:
    place = session.options.system_namespace
    lease = find_object(session.api, LEASES, LEADER_LEASE, namespace=place)
    return None if lease is None else holding_of(FieldReader(lease))


def _is_fresh(held: Holding, moment: datetime | None) -> bool:
    try:
        renewed = timestamp(held.renewed or None, "renewTime")
    except InvalidFieldError:
        return False
    if renewed is None or moment is None:
        return moment is None
    return abs(moment - renewed) <= timedelta(seconds=held.seconds)


def _is_renewed(session: Session, before: Holding) -> bool:
    options = session.options
    found = changed(
        lambda: _holding(session),
        before,
        float(before.seconds),
        clock=options.clock,
        sleep=options.sleep,
    )
    return found is not None and bool(found.holder)


def webhook_part(session: Session, namespace: str, attempts: Iterable[str]) -> Part:
    """Return whether the webhook answers.

    Args:
        session: Where it is read.
        namespace: One that defers its quotas.
        attempts: Words of schedulers' last attempts, by which it shows where no bind may be tried.
    """
    options = session.options
    settings = Settings(
        namespaces=(namespace,),
        system_namespace=options.system_namespace,
        is_offline=options.is_offline,
    )
    scene = CheckContext(session.api, settings)
    part = _offline(scene) if options.is_offline else _probed(scene)
    if part.health is not Health.UNKNOWN:
        return part
    failed = next((one for one in attempts if _NOT_CALLED in one and _OURS in one), "")
    return replace(part, health=Health.DOWN, detail=failed) if failed else part


def _probed(scene: CheckContext) -> Part:
    try:
        found = list(answers(scene))
    except NoRightError as err:
        detail = f"no right to {err.attributes.verb} {err.attributes.resource}"
        return Part(Health.UNKNOWN, f"whether the webhook answers: {detail}")
    except UnavailableError:
        raise
    except (ApiError, InvalidFieldError) as err:
        return Part(Health.UNKNOWN, f"whether the webhook answers: {err}")
    silent = _first(found, "webhooks.silent")
    if silent is not None:
        return Part(Health.DOWN, silent.message)
    unseen = _first(found, "webhooks.unseen")
    return _UP if unseen is None else Part(Health.UNKNOWN, unseen.message)


def _offline(scene: CheckContext) -> Part:
    try:
        found = list(workloads(scene))
    except (NotInSnapshotError, NoRightError):
        return Part(Health.UNKNOWN, "a snapshot does not show whether the webhook answers")
    for one in found:
        if one.id == "deployment.unavailable" and one.severity is Severity.ERROR:
            return Part(Health.DOWN, f"{one.subject}: {one.message}")
    return Part(Health.UNKNOWN, "a snapshot does not show whether the webhook answers")


def _first(found: Iterable[Finding], name: str) -> Finding | None:
    return next((one for one in found if one.id == name), None)
