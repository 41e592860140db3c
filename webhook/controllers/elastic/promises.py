"""Promises of the leader in the quotas that charge elastic quotas: made, found, withdrawn.

A promise is in each of these quotas that the pod takes something of, so that nothing that is freed
for it goes to another pod. The quotas are written one after the other; what is missing after a
crash is written at the next reconciliation of the promise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.controllers.runtime.leadership import Leadership
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.shared.escrow import has_room
from webhook.quota.shared.grants import Grants, Promise, with_promise, without_promises
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 1.0
_ATTEMPTS: Final = 4

Change = Callable[[Grants], Grants]


@dataclass(frozen=True, slots=True)
class HeldPromise:
    """What is promised to one pod."""

    uid: str
    namespace: str
    pod: str
    amounts: Mapping[str, ResourceList]
    """Quota, as ledgers name it → what is held there."""


class Promises:
    """The promises in the derived quotas. For the thread of one controller.

    Args:
        shared: Where the quotas are read and written.
        names: Returns the quotas that charge elastic quotas, as ledgers name them.
        leadership: The leadership to write under.
    """

    def __init__(
        self,
        shared: SharedQuotaStore,
        names: Callable[[], Iterable[str]],
        leadership: Leadership,
    ) -> None:
        self._shared = shared
        self._names = names
        self._leadership = leadership

    def held(self) -> dict[str, HeldPromise]:
        """Return all promises, by the uid of the pod."""
        found: dict[str, dict[str, Promise]] = {}
        for name in sorted(self._names()):
            version = self._shared.known(name)
            for uid, one in ({} if version is None else version.grants.promises).items():
                found.setdefault(uid, {})[name] = one
        return {uid: _held(uid, parts) for uid, parts in sorted(found.items())}

    def make(self, wanted: HeldPromise, epoch: int) -> bool:
        """Write a promise; return whether it stands in all its quotas.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        for name, amounts in wanted.amounts.items():
            promise = Promise(wanted.uid, wanted.namespace, wanted.pod, amounts)
            if not self._write(name, lambda grants, one=promise: _promising(grants, one), epoch):  # type: ignore[misc]
                return False
        return bool(wanted.amounts)

    def withdraw(self, uids: Collection[str], epoch: int) -> bool:
        """Hold nothing for some pods any more; return whether that is written everywhere.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        gone = frozenset(uids)
        results = [
            self._write(name, lambda grants: _withdrawing(grants, gone), epoch)
            for name in sorted(self._names())
            if self._has_any(name, gone)
        ]
        return all(results)

    def has_room(self, uid: str) -> bool:
        """Return whether all that is promised to a pod is free by now."""
        versions = [self._shared.known(name) for name in self._names()]
        shared = [one.shared for one in versions if one is not None and one.shared is not None]
        return all(
            has_room(one, one.grants.promises[uid]) for one in shared if uid in one.grants.promises
        )

    def _has_any(self, name: str, uids: frozenset[str]) -> bool:
        version = self._shared.known(name)
        return version is not None and not uids.isdisjoint(version.grants.promises)

    def _write(self, name: str, change: Change, epoch: int) -> bool:
        with self._shared.locked([name], until=time.monotonic() + _WAIT_SECONDS) as is_held:
            for number in range(_ATTEMPTS if is_held else 0):
                try:
                    version = self._version(name, is_fresh=number > 0)
                    if version is None:
                        return False
                    following = change(version.grants)
                    if following is version.grants:
                        return True
                    self._leadership.require(epoch)
                    self._shared.write(version, following)
                except ApiError as err:
                    # of a lost race the next attempt reads what the other wrote
                    _log.info("promise not written", extra={"quota": name, "error": err.message})
                except (InvalidFieldError, ValueError) as err:
                    _log.warning("promise not written", extra={"quota": name, "error": str(err)})
                    return False
                else:
                    return True
        return False

    def _version(self, name: str, *, is_fresh: bool) -> SharedQuotaVersion | None:
        """Return a version whose status can be read; what cannot be read is not written over."""
        version = None if is_fresh else self._shared.known(name)
        version = version or self._shared.fetch(name)
        return None if version is None or version.shared is None else version


def _held(uid: str, parts: Mapping[str, Promise]) -> HeldPromise:
    one = next(iter(parts.values()))
    amounts = {name: part.amounts for name, part in parts.items()}
    return HeldPromise(uid, one.namespace, one.pod, amounts)


def _promising(grants: Grants, promise: Promise) -> Grants:
    if grants.promises.get(promise.uid) == promise:
        return grants
    return with_promise(grants, promise)


def _withdrawing(grants: Grants, uids: frozenset[str]) -> Grants:
    return grants if uids.isdisjoint(grants.promises) else without_promises(grants, uids)
