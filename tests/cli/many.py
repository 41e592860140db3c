"""More namespaces than are changed at the same time, and a client that shows how many are."""

from __future__ import annotations

import threading
from typing import Final

from tests.reactions import ReactiveClient, preceded_by
from webhook.kube.api import NAMESPACES
from webhook.operations.together import AT_ONCE

MANY: Final = [f"team-{number:02}" for number in range(2 * AT_ONCE)]


def changes_meet(client: ReactiveClient) -> ReactiveClient:
    """Let changes of Namespaces through when as many have been sent as may be at once."""
    side_by_side = threading.Barrier(AT_ONCE)
    client.on("patch", NAMESPACES, preceded_by(lambda _: side_by_side.wait(10)))
    return client
