"""How long a cache is believed that hears nothing of the API server."""

from __future__ import annotations

from typing import Final

STALE_SECONDS: Final = 90.0
"""An API server sends a bookmark on every watch about once a minute, if nothing happens.

Source: kubernetes v1.36, apiserver/pkg/storage/cacher/cacher.go defaultBookmarkFrequency.
"""
