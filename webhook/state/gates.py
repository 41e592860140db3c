"""The write that takes our scheduling gate off a pod."""

from __future__ import annotations

from webhook.state.names import GATE


def gate_removal(uid: str, index: int) -> list[dict[str, object]]:
    """Return the JSON Patch that removes our gate; it fails if anything is not as it was seen.

    Args:
        uid: The pod that is meant.
        index: The gate's place among all gates of the pod.
    """
    gate = f"/spec/schedulingGates/{index}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{gate}/name", "value": GATE},
        {"op": "remove", "path": gate},
    ]
