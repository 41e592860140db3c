"""Placement of pods that have quota or a promise and no node: read once for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from itertools import islice
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import PODS, ClusterApi, Object, find_object
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.nodes.node_room import placement_key

_MOST: Final = 1024
"""Pods that are looked at: more than the queue has released at the same time."""
_MOST_READS: Final = 64
"""Pods that are read in one look, the others in the next; most were read for their own plan."""


class UnassignedPods:
    """Placements of pods without a node, by uid, for as long as they are asked about."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._keys: dict[str, bytes | None] = {}
        self.begin()

    def begin(self) -> None:
        """Begin another look."""
        self._left = _MOST_READS

    def note(self, raw: Object) -> None:
        """Keep the placement of a pod that was read: quota is promised to it next."""
        self._keys[FieldReader(raw).child("metadata").text("uid")] = placement_key(raw)

    def keep(self, uids: Set[str]) -> None:
        """Forget all pods but these."""
        self._keys = {uid: self._keys[uid] for uid in self._keys.keys() & uids}

    def placements(self, pods: Iterable[ElasticPod]) -> Counter[bytes]:
        """Return how many of some pods have each placement, as far as these are known.

        Raises:
            ApiError: The API server does not answer.
        """
        found: Counter[bytes] = Counter()
        for pod in islice(pods, _MOST):
            if pod.uid not in self._keys and self._left:
                self._left -= 1
                self._keys[pod.uid] = self._read(pod)
            key = self._keys.get(pod.uid)
            if key is not None:
                found[key] += 1
        return found

    def _read(self, pod: ElasticPod) -> bytes | None:
        raw = find_object(self._api, PODS, pod.name, namespace=pod.namespace)
        if raw is None or FieldReader(raw).child("metadata").text("uid") != pod.uid:
            return None
        return placement_key(raw)
