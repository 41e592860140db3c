"""Other quota managers (Kueue, AAQ), recognised by labels and gates of a pod.

Such a pod runs when both let it go. That works, but may not be intended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from webhook.quota.objects.model import Pod


def _gate(name: str) -> Callable[[Pod], bool]:
    return lambda pod: name in pod.scheduling_gates


def _label(name: str) -> Callable[[Pod], bool]:
    return lambda pod: name in pod.labels


_SIGNS: Final[Mapping[str, tuple[str, Callable[[Pod], bool]]]] = {
    "kueue.x-k8s.io/queue-name": ("Kueue", _label("kueue.x-k8s.io/queue-name")),
    "kueue.x-k8s.io/admission": ("Kueue", _gate("kueue.x-k8s.io/admission")),
    "ApplicationAwareQuotaGate": ("AAQ", _gate("ApplicationAwareQuotaGate")),
}
"""A label or a scheduling gate → whose it is, and whether a pod has it."""


def warnings(pod: Pod) -> tuple[str, ...]:
    """Name, once each, the other managers of quota for a pod."""
    found: dict[str, str] = {}
    for sign, (owner, has) in _SIGNS.items():
        if has(pod):
            found.setdefault(owner, sign)
    return tuple(
        f"{owner} holds this pod for quota too ({sign}): it runs when both let it go"
        for owner, sign in found.items()
    )
