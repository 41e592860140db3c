"""A requeuer beside a ledger controller; nothing happens but in `reconcile`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, cast

from tests.controllers.controller_harness import NAMESPACE, ControllerHarness
from tests.reactions import ReactiveClient
from webhook.controllers.requeue.controller import REQUEUED_ANNOTATION, RequeueOptions, Requeuer
from webhook.kube.api import PODS, RESOURCE_QUOTAS

WORDS = "quota exceeded: p1, requested: requests.cpu=1, used: requests.cpu=2, limited: ..."


REFUSED = f"0/3 nodes are available: 3 {WORDS}"


NO_NODE = "0/3 nodes are available: 3 Insufficient cpu."


_numbers = itertools.count()


@dataclass
class RequeueHarness:
    """A requeuer beside a controller; nothing happens but in `reconcile`."""

    harness: ControllerHarness
    enabled: bool = True

    def __post_init__(self) -> None:
        self.api = ReactiveClient(self.harness.cluster)
        self.requeuer = Requeuer(
            replace(self.harness.context, api=self.api),
            lambda: self.harness.controller.pods,
            RequeueOptions(
                is_enabled=lambda: self.enabled,
                ledgers=self.harness.ledgers,
                managed=self.harness.opted,
                policy=lambda: self.harness.policy,
            ),
        )
        self.harness.controller.pods.add_handler(self.requeuer.on_pod)

    @property
    def touched(self) -> list[str]:
        """Names of the pods that were patched, in order."""
        return [call.name for call in self.api.calls_of("patch", PODS)]

    @property
    def reads(self) -> list[str]:
        """Names of the pods that were read, in order."""
        return [call.name for call in self.api.calls_of("get", PODS)]

    def reconcile(self, *, after: float = 0.0) -> list[str]:
        """Let the controller settle and the requeuer run; return the pods that were patched."""
        self.harness.pass_time(after)
        self.harness.step()
        self.harness.catch_up()
        before = len(self.touched)
        self.requeuer.run_pass()
        return self.touched[before:]

    # -- the cluster -----------------------------------------------------------------------

    def reject_pod(
        self,
        *names: str,
        cpu: str = "1",
        message: str = REFUSED,
        namespace: str = NAMESPACE,
        **fields: Any,
    ) -> None:
        """Create pods that the scheduler has looked at."""
        for name in names:
            self.harness.pod(name, cpu, namespace, **fields)
            self.set_condition(name, message, namespace=namespace)

    def set_condition(
        self, name: str, message: str, reason: str = "Unschedulable", namespace: str = NAMESPACE
    ) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "try": next(_numbers),  # every attempt is a new version
        }
        patch = {"status": {"conditions": [condition]}}
        self.harness.api.patch(PODS, name, patch, namespace=namespace, subresource="status")

    def run_pod(self, name: str, cpu: str = "2") -> None:
        self.harness.pod(name, cpu, node="node-0")

    def set_quota(self, cpu: str) -> None:
        patch = {"spec": {"hard": {"requests.cpu": cpu}}}
        self.harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)

    def annotation(self, name: str) -> str:
        found = self.harness.api.get(PODS, name, namespace=NAMESPACE)
        metadata = cast("dict[str, dict[str, str]]", found["metadata"])
        return metadata.get("annotations", {}).get(REQUEUED_ANNOTATION, "")
