"""More namespaces than are worked on at the same time, and a client that shows how many are."""

from __future__ import annotations

import threading
from typing import Any, Final

from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import NAMESPACES, Kind, Revision
from webhook.operations.together import AT_ONCE

MANY: Final = [f"team-{number:02}" for number in range(2 * AT_ONCE)]


class Meeting(FakeClient):
    """Lets a change of a Namespace through when as many are asked for as may be at once."""

    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        super().__init__(cluster, **options)
        self._side_by_side = threading.Barrier(AT_ONCE)

    def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
        if kind == NAMESPACES:
            self._side_by_side.wait(10)
        return super().patch(kind, name, *args, **kwargs)
