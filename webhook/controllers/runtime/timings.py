"""Timings of controllers: one class for all of them, so that one clock moves them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from webhook.kube.informer import InformerTimings


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTimings:
    """Pauses and clocks of all controllers of a process; those of the election are its own."""

    clock: Callable[[], float] = time.monotonic
    """The monotonic clock."""
    thread_time: Callable[[], float] = time.thread_time
    """Processor time of the thread that asks."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The time of day, for people."""
    informer: InformerTimings = field(default_factory=InformerTimings)

    write_interval_seconds: float = 0.1
    """Between two writes of one ledger."""
    fold_seconds: float = 0.5
    """From a bind to the write that turns its reservation into `used`. That frees nothing, so it
    can wait for the binds behind it."""
    resync_seconds: float = 10.0
    """Between two looks at a ledger where nothing happens."""
    followed_resync_seconds: float = 120.0
    """The same where a watch shows every change of a ledger."""
    external_change_seconds: float = 0.5
    """From another client's change of a ledger to the next look."""
    expire_seconds: float = 45.0
    """How long a reservation is watched before it can expire."""
    drift_check_seconds: float = 600.0
    """Between two comparisons of the count with a fresh list of the pods."""
    max_retry_seconds: float = 30.0
    """The longest pause of a namespace that fails again and again."""
    waits_at_start: bool = False
    """Whether namespaces that are opted in when this process begins to lead, and have no ledger,
    get one only after `expire_seconds`: it may have been lost, and with it what was reserved in it.
    False where the cluster begins with this process."""

    mask_second_count_seconds: float = 2.0
    """From completing the status of a quota to counting again."""
    quota_controller_seconds: float = 2.0
    """How long the quota controller has to complete the status of a quota by itself, where no
    namespace has opted out just now."""
    registration_seconds: float = 3.0
    """Between two looks at the registration of the webhook."""
    mask_first_retry_seconds: float = 0.2
    """Pause of a quota after its first failure; it doubles each time."""
    mask_max_retry_seconds: float = 30.0

    condition_interval_seconds: float = 30.0
    """Between two writes of one pod's condition."""
    position_interval_seconds: float = 300.0
    """The same where only the pod's place in the queue has changed."""

    requeue_interval_seconds: float = 15.0
    """From one requeue of a pod to the next; longer than a scheduler's back-off, which is 10 s."""
    requeue_poll_seconds: float = 0.1

    shadow_write_interval_seconds: float = 1.0
    """Between two writes of one shadow record, while something changes."""
    shadow_first_idle_seconds: float = 5.0
    """The same once nothing changes; it doubles each time."""
    shadow_max_idle_seconds: float = 60.0
    shadow_retry_seconds: float = 5.0
    shadow_poll_seconds: float = 0.25

    event_repeat_seconds: float = 30.0
    """Between two writes of the same event."""
    event_expire_seconds: float = 600.0
    """An event that was not repeated for so long begins anew."""
