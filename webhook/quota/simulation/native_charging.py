"""The API server's own charge, at the creation of a pod, and given back when it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, mask, subtract
from webhook.quota.charging.denials import full_message
from webhook.quota.charging.evaluation import PodRequest, assess
from webhook.quota.charging.limited_resources import LimitedResource
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import is_pod_quota_key
from webhook.quota.simulation.values import Arrival, PodTemplate


class NativeCharging:
    """Quotas of one namespace as the API server enforces them.

    Args:
        quotas: The quotas.
        hidden: Keys that are taken out of their status, and so are not enforced here.
        limited: What may be used only where a quota limits it.
    """

    def __init__(
        self,
        quotas: Sequence[ResourceQuota],
        hidden: Set[str],
        limited: Sequence[LimitedResource],
    ) -> None:
        shown = [(quota, _enforced(quota, hidden)) for quota in quotas]
        self._quotas = {
            quota.name: replace(quota, status_hard=hard, status_used=dict.fromkeys(hard, ZERO))
            for quota, hard in sorted(shown, key=lambda item: item[0].name)
            if hard or limited
        }
        self._limited = limited
        self._requests: dict[PodTemplate, PodRequest] = {}
        self._charges: dict[str, Mapping[str, ResourceList]] = {}
        """Key of a created pod → quota → amounts."""
        self.changes = 0
        """How often something was charged or given back."""

    def create(self, arrival: Arrival) -> str:
        """Charge a new pod; return the refusal in the API server's words, if it is refused."""
        if not self._quotas and not self._limited:
            return ""
        outcome = assess(
            self._request(arrival.template), tuple(self._quotas.values()), self._limited
        )
        if not isinstance(outcome, tuple):
            return full_message(outcome, arrival.name)
        charges = {quota.name: mask(charge, quota.status_hard) for quota, charge in outcome}
        self._charges[arrival.key] = charges
        for name, charge in charges.items():
            self._set_used(name, add(self._quotas[name].status_used, charge))
        return ""

    def give_back(self, arrival: Arrival) -> None:
        """Charge a pod no more; its object is deleted when it ends."""
        for name, charge in self._charges.pop(arrival.key, {}).items():
            self._set_used(name, subtract(self._quotas[name].status_used, charge))

    def _set_used(self, name: str, used: ResourceList) -> None:
        self.changes += 1
        self._quotas[name] = replace(self._quotas[name], status_used=used)

    def _request(self, template: PodTemplate) -> PodRequest:
        request = self._requests.get(template)
        if request is None:
            request = PodRequest.create(template.pod, usage_of(template.pod, now=None))
            self._requests[template] = request
        return request


def _enforced(quota: ResourceQuota, hidden: Set[str]) -> ResourceList:
    return {
        name: amount
        for name, amount in quota.hard.items()
        if is_pod_quota_key(name) and name not in hidden
    }
