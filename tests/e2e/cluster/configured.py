"""Another configuration for a while, as an administrator edits the ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.e2e.cluster.product import Product
from tests.e2e.cluster.waiting import eventually

_RELOADED: Final = '"configuration reloaded"'


@contextmanager
def configured(product: Product, **fields: Any) -> Iterator[None]:
    """Add fields to the configuration until the block is left; both are waited for."""
    path = product.configuration_file
    before = path.read_text()
    _write(product, json.dumps({**json.loads(before), **fields}))
    try:
        yield
    finally:
        _write(product, before)


def _write(product: Product, text: str) -> None:
    reloads = {server.name: _reloads(server.log.read_text()) for server in product.processes}
    product.configuration_file.write_text(text)
    for server in product.processes:
        eventually(
            lambda server=server: _reloads(server.log.read_text()) > reloads[server.name],  # type: ignore[misc]
            f"{server.name} has read its configuration",
        )


def _reloads(log: str) -> int:
    return log.count(_RELOADED)
