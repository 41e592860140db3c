"""Pods of a workload during a rollout, besides those of its finished state.

Source: kubernetes v1.36, pkg/controller/deployment/util/deployment_util.go ResolveFenceposts,
pkg/apis/apps/v1/defaults.go, pkg/controller/daemon/update.go, pkg/controller/cronjob.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader

_PERCENT: Final = re.compile(r"(\d{1,9})%", re.ASCII)
_DEFAULT: Final = "25%"
_ROLLING: Final = "RollingUpdate"


class Rollout(StrEnum):
    """Moment of a workload's life that is asked about."""

    STEADY = "steady"
    """When it is finished: no pod of an earlier revision is left."""
    SURGE = "surge"
    """The peak, with the strategy that each object has."""
    RECREATE = "recreate"
    """The peak, with pods of the earlier revision gone before those of the next are made."""


@dataclass(frozen=True, slots=True)
class Surge:
    """Pods beyond the finished state."""

    count: int = 0
    is_needed: bool = False
    """Whether the rollout cannot go on without room for one of them."""


NONE: Final = Surge()


def surge_of(raw: Mapping[str, object], count: int, rollout: Rollout, *, field: str = "") -> Surge:
    """Return how many more pods an object has at the peak of a rollout.

    - Deployment, DaemonSet: `maxSurge`; needed where `maxUnavailable` is zero.
    - StatefulSet, Job: none, an old pod goes before the new one comes.
    - CronJob: a run beside the one before it, unless `concurrencyPolicy` forbids it.

    Args:
        raw: The object.
        count: Its pods when it is finished.
        rollout: Which moment is asked about.
        field: YAML path of the object.

    Raises:
        InvalidFieldError: A field that is read is neither a number nor a percentage.
    """
    if rollout is not Rollout.SURGE or not count:
        return NONE
    reader = _READERS.get(FieldReader(raw, field).text("kind"))
    return NONE if reader is None else reader(FieldReader(raw, field).child("spec"), count)


def _deployment(spec: FieldReader, count: int) -> Surge:
    strategy = spec.child("strategy")
    if strategy.text("type") not in {"", _ROLLING}:
        return NONE
    rolling = strategy.child("rollingUpdate")
    surge = _scaled(rolling, "maxSurge", count, default=_DEFAULT, up=True)
    unavailable = _scaled(rolling, "maxUnavailable", count, default=_DEFAULT, up=False)
    # both zero: the controller takes one pod away at a time
    return Surge(surge, is_needed=bool(surge) and not unavailable)


def _daemon_set(spec: FieldReader, count: int) -> Surge:
    strategy = spec.child("updateStrategy")
    if strategy.text("type") not in {"", _ROLLING}:
        return NONE
    rolling = strategy.child("rollingUpdate")
    surge = _scaled(rolling, "maxSurge", count, default=0, up=True)
    unavailable = _scaled(rolling, "maxUnavailable", count, default=1, up=True)
    return Surge(min(surge, count), is_needed=bool(surge) and not unavailable)


def _cron_job(spec: FieldReader, count: int) -> Surge:
    return NONE if spec.text("concurrencyPolicy") == "Forbid" else Surge(count)


_READERS: Final[Mapping[str, Callable[[FieldReader, int], Surge]]] = {
    "Deployment": _deployment,
    "DaemonSet": _daemon_set,
    "CronJob": _cron_job,
}


def _scaled(holder: FieldReader, name: str, count: int, *, default: int | str, up: bool) -> int:
    """Return a number of pods that is given as such or as a percentage.

    Source: kubernetes v1.36, apimachinery/pkg/util/intstr GetScaledValueFromIntOrPercent.
    """
    value = _written(holder, name, default)
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, int) and value >= 0:
        return value
    if percent is None:
        wrong = f"must be a whole number or a percentage such as 25%, not {value!r}"
        raise InvalidFieldError(holder.path(name), wrong)
    parts = int(percent[1]) * count
    return -(-parts // 100) if up else parts // 100


def _written(holder: FieldReader, name: str, default: int | str) -> int | str:
    if not holder.has(name):
        return default
    try:
        return holder.text(name)
    except InvalidFieldError:
        return holder.integer(name) or 0
