"""Servers for tests of the embedded API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakecluster.webhook_server import WebhookServer
from webhook.fakecluster.admission.webhook_client import WebhookCaller


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[WebhookServer]:
    """A webhook server that answers nothing yet."""
    server = WebhookServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def caller(hooks: WebhookServer) -> Iterator[WebhookCaller]:
    """A caller that trusts the webhook server."""
    calling = WebhookCaller(hooks.ca_pem)
    yield calling
    calling.close()
