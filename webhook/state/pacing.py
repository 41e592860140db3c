"""Gating of a namespace: whether its pods wait for quota behind our scheduling gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.state.names import (
    AUTO_PACING,
    FORMER_PACING_LABEL,
    FORMER_PACINGS,
    GATE_PACING,
    NO_PACING,
    PACING_LABEL,
)

PACINGS: Final = (GATE_PACING, AUTO_PACING, NO_PACING)


def pacing_of(labels: Mapping[str, str], configured: str) -> str:
    """Return the gating of a namespace with these labels; `configured` where they name none.

    The label of earlier versions counts where the new one is absent.
    """
    former = FORMER_PACINGS.get(labels.get(FORMER_PACING_LABEL, ""), configured)
    value = labels.get(PACING_LABEL, former)
    return value if value in PACINGS else configured
