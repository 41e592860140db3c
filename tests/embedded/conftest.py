"""Servers for tests of the embedded API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.hooks import HookServer
from webhook.embedded.calls import WebhookCaller


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[HookServer]:
    """A webhook server that answers nothing yet."""
    server = HookServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def caller(hooks: HookServer) -> Iterator[WebhookCaller]:
    """A caller that trusts the webhook server."""
    calling = WebhookCaller(hooks.ca_pem)
    yield calling
    calling.close()
