"""Replicas of the webhook: what they are asked, and what they claim by what they have seen."""

from __future__ import annotations

from dataclasses import replace

from tests.quota.ledger_world.objects import PodState, Request, observed, part, pick
from tests.quota.ledger_world.replicas import Replica
from tests.quota.ledger_world.requests import Requests
from tests.quota.ledger_world.storage import Storage
from webhook.quota.ledger.ledger import Claim, ReservationSource


class HandlerActor(Replica):
    """A webhook replica; every public method is one step."""

    def __init__(self, storage: Storage, requests: Requests) -> None:
        super().__init__(storage)
        self._requests = requests

    def bind(self, index: int) -> None:
        """Be asked to bind a waiting pod."""
        now = pick([pod for pod in self._live_pods() if not pod.is_assigned], index)
        if now is None or now.is_gated:  # the handler says what storage would say
            return
        claim = self.claim(self._pod_as_seen(now), ReservationSource.BIND)
        self._ask("bind", replace(now, is_assigned=True), 0, claim)

    def create_assigned(self, cpu: int, memory: int) -> None:
        """Be asked to create a pod that has a node from the start."""
        pod = self.storage.new_pod(cpu, memory, gold=cpu % 2 == 0)
        pod = replace(pod, is_assigned=True)
        self._ask("create", pod, 0, self.claim(pod, ReservationSource.CREATE))

    def mirror(self, cpu: int, memory: int) -> None:
        """Be asked by a kubelet to create a pod that runs already."""
        pod = self.storage.new_pod(cpu, memory, gold=cpu % 2 == 0)
        pod = replace(pod, is_assigned=True, is_mirror=True)
        self._ask(
            "create", pod, 0, replace(self.claim(pod, ReservationSource.CREATE), skip_limits=True)
        )

    def forge(self, cpu: int, memory: int, index: int) -> None:
        """Be asked by whoever reaches the port, as if a kubelet did; storage never hears of it.

        The uid is that of no pod, or of one that is there.
        """
        pod = self.storage.new_pod(cpu, memory, gold=cpu % 2 == 0)
        known = pick(self._live_pods(), index) if index % 3 == 0 else None
        uid = f"forged-{pod.name}" if known is None else known.uid
        pod = replace(pod, uid=uid, is_assigned=True, is_mirror=True)
        self._ask(
            "forged", pod, 0, replace(self.claim(pod, ReservationSource.CREATE), skip_limits=True)
        )

    def resize(self, index: int, cpu: int) -> None:
        """Be asked to change the cpu of a pod, waiting or assigned."""
        pod = pick(self._live_pods(), index)
        if pod is not None:
            self._change(pod, replace(pod, cpu=cpu), ReservationSource.RESIZE)

    def patch(self, index: int, cpu: int, age: int) -> None:
        """Be asked about a patch of the cpu of a pod, as it was some versions ago.

        An API server applies a patch to the pod in its cache, and asks about that. If storage has a
        newer one, it applies the patch to that, and asks again, whatever the first answer was.

        Source: kubernetes v1.36, staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go
        GuaranteedUpdate.
        """
        now = pick(self._live_pods(), index)
        if now is not None:
            versions = [pod for pod in self.storage.pod_history if pod.uid == now.uid]
            self._patch(versions[-1 - age % len(versions)], cpu, self.storage.clock)

    def flip(self, index: int) -> None:
        """Be asked to give a pod a deadline, or to take it away."""
        pod = pick(self._live_pods(), index)
        if pod is not None:
            self._change(
                pod, replace(pod, has_deadline=not pod.has_deadline), ReservationSource.UPDATE
            )

    # -- inside ----------------------------------------------------------------------------

    def _live_pods(self) -> list[PodState]:
        return [pod for pod in self.storage.pods.values() if pod.counts(holds=self.holds)]

    def _pod_as_seen(self, now: PodState) -> PodState:
        """The pod in the cache, or live where the cache has none or is too old."""
        _, known = self.storage.read_ledger()
        seen = self.pods.get(now.uid)
        if (
            seen is None
            or seen.is_gated
            or (known is not None and self.pods_seen < known.pods_barrier)
        ):
            return now
        return seen

    def _seen(self) -> int:
        """How far it has seen pods, or the barrier that a live look-up satisfies."""
        _, known = self.storage.read_ledger()
        return self.pods_seen if known is None else max(self.pods_seen, known.pods_barrier)

    def _patch(self, seen: PodState, cpu: int, started: float) -> None:
        """Ask about a patch of a pod as it was seen, and again if it is not that any more."""
        request = self._change(seen, replace(seen, cpu=cpu), ReservationSource.RESIZE)
        request.started = started
        request.again = lambda now: self._patch(now, cpu, started)

    def _change(self, old: PodState, new: PodState, source: ReservationSource) -> Request:
        """Ask for an update of a pod; storage writes it only if the pod is still `old`."""
        counted = {
            name: part(old.usage, self.keys)
            for name, quota in self.quotas.items()
            if old.is_assigned and quota.applies_to(old)
        }
        claim = replace(
            self.claim(new, source),
            counted=counted,
            base_version=old.version,
            is_intent=not old.is_assigned,
        )
        return self._ask("change", new, old.version, claim)

    def _ask(self, kind: str, pod: PodState, read_version: int, claim: Claim) -> Request:
        request = Request(
            kind,
            pod,
            read_version,
            self.storage.clock,
            replace(claim, observed_version=self._seen()),
            observed(self.quotas, self.keys, holds=self.holds),
            self.storage.read_ledger(),
            self.keys,
            self.holds,
        )
        self._requests.open.append(request)
        return request
