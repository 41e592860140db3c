"""Which pacing a namespace has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.state.names import AUTO_PACING, GATE_PACING, NO_PACING, PACING_LABEL

PACINGS: Final = (GATE_PACING, AUTO_PACING, NO_PACING)


def pacing_of(labels: Mapping[str, str], configured: str) -> str:
    """Return the pacing of a namespace with these labels; `configured` where they name none."""
    value = labels.get(PACING_LABEL, configured)
    return value if value in PACINGS else configured
