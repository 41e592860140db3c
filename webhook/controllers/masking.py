"""When the status of quotas is looked at, and what can go wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from webhook.cluster.api import RESOURCE_QUOTAS
from webhook.controllers.events import About
from webhook.quota.objects import ResourceQuota


@dataclass(frozen=True, slots=True)
class MaskTiming:
    """When quotas are looked at; all times are seconds.

    Attributes:
        second_look: From completing a status to counting again.
        patience: How long the quota controller has to complete the status of a quota by itself
            before this does, where nobody has opted out just now.
        guard_seconds: Between two looks at whether the guard stands.
        first_retry, longest_retry: After failures the pause doubles between them.
    """

    second_look: float = 2.0
    patience: float = 2.0
    guard_seconds: float = 3.0
    first_retry: float = 0.2
    longest_retry: float = 30.0


class HiddenAgainError(Exception):
    """What was brought back was taken out in the same write."""

    def __init__(self, quota: ResourceQuota, keys: Iterable[str]) -> None:
        self.about = About(RESOURCE_QUOTAS, quota.name, quota.namespace, quota.uid)
        super().__init__(
            f"nobody enforces {', '.join(sorted(keys))}: not deferred here, but a mask that is"
            " installed takes it out of the status; run scripts/install, which writes the mask as"
            " it has to be, or delete the mask"
        )
