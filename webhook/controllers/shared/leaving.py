"""Namespaces that leave shared quotas without a reconciliation of their own.

A namespace that a quota names, and that is not tracked or has no ledger, is dropped once nothing
can be admitted by its ledger: the quota is read, after that its ledger, which must not count the
quota, and after that the namespace, which must have left; the quota is then written in the place of
the version that was read. All that leave a quota are dropped with one write.

Few are looked up one by one. Of many, which a stolen token can have named, one list of the ledgers
shows which have none, and after it one of the namespaces which are not opted in. Both begin after
the quota was read and ask for no version, which is a quorum read like that of one object: each is
of one moment and shows of every namespace what a lookup at that moment would. Of a list that does
not come to its end nothing is believed. Those with a ledger are looked up all the same.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection
from typing import Final

from webhook.controllers.runtime.rate_limit import ListPauses
from webhook.controllers.shared.shared_context import SharedQuotaContext
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError
from webhook.quota.objects.names import dns_label_errors
from webhook.quota.shared.cluster_quotas import ClusterQuota
from webhook.quota.shared.grants import without
from webhook.state.shared_quotas import SharedQuotaVersion

_log = logging.getLogger(__name__)

WAIT_SECONDS: Final = 1.0
"""How long threads of this process are waited for that write a quota."""
_REST_SECONDS: Final = 1.0
_NAMED: Final = 8
"""Namespaces that a log line names."""
_MAX_LOOKUPS: Final = 10
"""Namespaces that are looked up in one go: what is written meanwhile makes it come to nothing."""


class Leaving:
    """Drops namespaces from shared quotas; for one thread.

    Args:
        shared: The shared quotas of all.
        few: Up to how many namespaces nothing is listed for.
    """

    def __init__(self, shared: SharedQuotaContext, *, few: int = _MAX_LOOKUPS) -> None:
        self.shared: Final = shared
        self._few = few
        self._lists = ListPauses(shared.clock)
        self._last: dict[str, str] = {}
        """Quota → the namespace that was looked up last for it."""
        self._not_before: dict[str, float] = {}
        """Quota → when namespaces are looked at again, where none of some could be dropped."""

    def reset(self) -> None:
        """Forget what an earlier leadership has looked at."""
        self._lists.clear()
        self._last.clear()
        self._not_before.clear()

    def noted_quotas(self) -> set[str]:
        """Return the quotas of which something is noted, by their names in ledgers."""
        return {*self._last, *self._not_before}

    def forget(self, name: str) -> None:
        """Forget a quota that is gone."""
        for noted in (self._last, self._not_before):
            noted.pop(name, None)

    def drop(self, namespaces: Collection[str], name: str, epoch: int) -> bool:
        """Drop those of some namespaces from a quota that have left it.

        Returns:
            Whether all were looked at; else it has to be tried again.

        Raises:
            ApiError: The API server does not do it.
            InvalidFieldError: Not even the identity of the quota can be read.
            NotLeadingError: Another process may be writing.
        """
        if self.shared.clock() < self._not_before.get(name, -math.inf):
            return False
        until = time.monotonic() + WAIT_SECONDS
        with self.shared.store.locked([name], until=until) as is_held:
            version = self.shared.store.fetch(name) if is_held else None
            if version is None or version.shared is None:
                return False
            gone = self.listed(namespaces, version) if len(namespaces) > self._few else set()
            looked_at = set(gone)
            for namespace in [] if gone else self._chosen(namespaces, name):
                try:
                    if self._has_left(namespace, name, version.shared.quota):
                        gone.add(namespace)
                except InvalidFieldError as err:
                    _log.info(
                        "ledger of a namespace that left not read",
                        extra={"namespace": namespace, "quota": name, "error": str(err)},
                    )
                else:
                    looked_at.add(namespace)
            if gone:
                self.shared.write(version, without(version.shared.grants, gone), epoch)
                _log.info(
                    "left a shared quota",
                    extra={
                        "quota": name,
                        "count": len(gone),
                        "namespace": ", ".join(sorted(gone)[:_NAMED]),
                    },
                )
        are_all = looked_at >= {*namespaces}
        if not (gone or are_all):
            self._not_before[name] = self.shared.clock() + _REST_SECONDS
        return are_all

    def listed(self, namespaces: Collection[str], version: SharedQuotaVersion) -> set[str]:
        """Return those of some namespaces that have no ledger and are not opted in, by lists."""
        if self._lists.seconds_left(version.name):
            return set()
        try:
            with self._lists.measured(version.name):
                counted = self.shared.ledgers.uids(newest=version.resource_version)
                opted_in = self.shared.participation.managed_namespaces()
        except ApiError as err:  # a few are looked up then
            _log.info(
                "ledgers and namespaces not listed",
                extra={"quota": version.name, "error": err.message},
            )
            return set()
        return {*namespaces} - counted.keys() - opted_in

    def _chosen(self, namespaces: Collection[str], name: str) -> list[str]:
        """Return the next namespaces to look up: none that stays keeps another from its turn."""
        last = self._last.get(name, "")
        chosen = sorted(namespaces, key=lambda one: (one <= last, one))[:_MAX_LOOKUPS]
        if chosen:
            self._last[name] = chosen[-1]
        return chosen

    def _has_left(self, namespace: str, name: str, quota: ClusterQuota) -> bool:
        """Return whether nothing can be admitted by the ledger of a namespace that has left.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: Its ledger cannot be read.
        """
        if dns_label_errors(namespace):
            return True  # no namespace is called that, and a path of it could be of another object
        ledger = self.shared.ledgers.fetch(namespace)
        if ledger is not None and ledger.ledger and name in ledger.ledger.accounts:
            self.shared.usage_cache.clear_abandoned(namespace)
            return False
        return self.shared.participation.has_left(namespace, quota)
