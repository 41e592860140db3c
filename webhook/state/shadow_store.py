"""Store of shadow mode's records, in `status.shadow` of the ledger object.

Handlers and the controller add to one record, each by compare-and-swap, and an addition whose
answer got lost is not made twice: the record says what each writer added last.

Of the rest of the object only its summary is written, and nothing at all if the ledger counts some
quota: shadow mode must never interfere with a ledger, nor create one that handlers decide by.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.kube.api import (
    QUOTA_LEDGERS,
    AlreadyExistsError,
    ApiError,
    ClusterApi,
    ConflictError,
    NotFoundError,
    Object,
    find_object,
)
from webhook.kube.metadata import utc_now
from webhook.quota.ledger.ledger_codec import is_of_newer_release
from webhook.quota.shadow.record import Findings, QuotaUse, ShadowRecord
from webhook.quota.shadow.record_codec import (
    SHADOW_FIELD,
    shadow_from_status,
    shadow_status,
    shadow_summary,
)
from webhook.state.ledger_store import LEDGER_NAME, empty_ledger

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS: Final = 6
_PASSING: Final = frozenset({408, 409, 429})
"""Codes of refusals that another attempt may not meet."""
ENDED_SUMMARY: Final = "shadow: ended"
"""Line for people of a record to which nothing is added: its namespace left shadow mode."""


class ShadowRecordStore:
    """The records of all namespaces. Safe to use from several threads."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def uses(self, namespace: str) -> Mapping[str, QuotaUse] | None:
        """Return what the quotas of a namespace are used, as last written; None if unknown.

        Raises:
            ApiError: The API server does not answer.
        """
        stored = find_object(self._api, QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        record = None if stored is None else _record_of(_status_of(stored))
        return None if record is None else record.quotas

    def add(
        self, namespace: str, findings: Findings, *, writer: str, number: int, begins: bool = False
    ) -> bool:
        """Add findings to the record of a namespace; False where there is none to add to.

        Args:
            findings: What was found.
            writer: Who adds them.
            number: Which of its additions this is, counted from 1; the same when it is repeated.
            begins: Whether a record is made where there is none. It begins with how the quotas
                stand, and with nothing that happened before.

        Raises:
            ApiError: It was not written, or it is not known whether it was: repeat it.
        """
        for _ in range(_MAX_ATTEMPTS):
            stored = self._find(namespace, makes=begins)
            if stored is None:
                return False
            status = _status_of(stored)
            if _is_guarding(status) or is_of_newer_release(status):
                return False  # none of our business
            record = _record_of(status)
            if record is None and not begins:
                return False
            following = self._following(record, findings, writer, number)
            if following is record or self._write(stored, status, following, is_leader=begins):
                return True
        raise ConflictError(f"the ledger of namespace {namespace} keeps changing")

    def end(self, namespace: str) -> None:
        """Write in the line for people that the record has ended, unless another count took over.

        Raises:
            ApiError: The API server does not do it.
        """
        stored = self._find(namespace, makes=False)
        if stored is None:
            return
        status = _status_of(stored)
        if is_of_newer_release(status):
            return
        if status.get("summary", "") not in {"", ENDED_SUMMARY} and not _is_guarding(status):
            self._put(stored, {**status, "summary": ENDED_SUMMARY})

    # -- inside ----------------------------------------------------------------------------

    def _find(self, namespace: str, *, makes: bool) -> Object | None:
        stored = find_object(self._api, QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        if stored is not None or not makes:
            return stored
        with suppress(AlreadyExistsError):
            self._api.create(QUOTA_LEDGERS, empty_ledger(namespace))
        return self._api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)

    def _following(
        self, record: ShadowRecord | None, findings: Findings, writer: str, number: int
    ) -> ShadowRecord:
        now = utc_now()
        if record is not None:
            return record.with_findings(findings, writer=writer, number=number, now=now)
        begun = {name: use.now() for name, use in (findings.quotas or {}).items()}
        return ShadowRecord(now, now, quotas=begun, writers={writer: number})

    def _write(
        self,
        stored: Object,
        status: Mapping[str, object],
        record: ShadowRecord,
        *,
        is_leader: bool,
    ) -> bool:
        line = {"summary": shadow_summary(record.quotas)} if is_leader else {}
        try:
            self._put(stored, {**status, **line, SHADOW_FIELD: shadow_status(record)})
        except ConflictError:
            return False
        return True

    def _put(self, stored: Object, status: Mapping[str, object]) -> None:
        self._api.update_status(QUOTA_LEDGERS, {**stored, "status": status}, is_brief=True)


@dataclass(slots=True)
class _Unsent:
    number: int
    findings: Findings


class ShadowWriter:
    """One writer's additions, each made once however often it has to be repeated.

    For use by one thread.

    Args:
        store: Where to add.
        name: The writer's name, unlike that of any other process.
        begins: As for `ShadowRecordStore.add`.
    """

    def __init__(self, store: ShadowRecordStore, name: str, *, begins: bool) -> None:
        self._store = store
        self._name = name
        self._begins = begins
        self._number = 0
        self._unsent: dict[str, _Unsent] = {}

    def send(self, namespace: str, take: Callable[[], Findings | None]) -> bool | None:
        """Add what could not be added before, and then what is new.

        Args:
            take: Hands over what is new, once; None when there is nothing.

        Returns:
            Whether there is a record to add to; None when there was nothing to add.

        Raises:
            ApiError: Something was not added, and is kept.
        """
        unsent = self._unsent.get(namespace)
        if unsent is not None:
            self._add(namespace, unsent)
        findings = take()
        if findings is None:
            return None
        self._number += 1
        unsent = self._unsent[namespace] = _Unsent(self._number, findings)
        return self._add(namespace, unsent)

    def has_unsent(self, namespace: str) -> bool:
        """Return whether something could not be added, and is tried again with what is new."""
        return namespace in self._unsent

    def forget(self, namespace: str) -> None:
        """Forget what could not be added: the namespace is not in shadow mode any more."""
        self._unsent.pop(namespace, None)

    def _add(self, namespace: str, unsent: _Unsent) -> bool:
        try:
            is_there = self._store.add(
                namespace,
                unsent.findings,
                writer=self._name,
                number=unsent.number,
                begins=self._begins,
            )
        except NotFoundError:
            is_there = False  # the namespace is gone, or ledgers are not defined
        except ApiError as err:
            if 400 <= err.code < 500 and err.code not in _PASSING:
                self._unsent.pop(namespace, None)  # it would be refused again
            raise
        self._unsent.pop(namespace, None)
        return is_there


def _status_of(stored: Object) -> Mapping[str, object]:
    try:
        return mapping(stored.get("status"), "status")
    except InvalidFieldError:
        return {}


def _is_guarding(status: Mapping[str, object]) -> bool:
    """Return whether some quota is counted, so that requests are admitted and refused by it."""
    return bool(status.get("quotas"))


def _record_of(status: Mapping[str, object]) -> ShadowRecord | None:
    """Read the record; one that cannot be read counts as none, and is begun anew."""
    try:
        return shadow_from_status(status.get(SHADOW_FIELD))
    except InvalidFieldError as err:
        _log.warning("shadow record not read", extra={"error": str(err)})
        return None
