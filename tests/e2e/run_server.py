"""Runs the real server in a process of its own; see `tests.e2e.harness`.

Usage: python -m tests.e2e.run_server '{"parts": "module:function", "certificates": "DIR", ...}'
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webhook.admission.serving.server import serve
from webhook.admission.serving.server_settings import (
    Build,
    ServerParts,
    ServerSettings,
)
from webhook.admission.serving.sockets import ListenAddress
from webhook.telemetry import logs
from webhook.tls.clients import TrustedClients
from webhook.tls.files import CertificateFiles

ANY = "127.0.0.1:0"


def building(path: str) -> Build:
    """Give a function that calls "module:function" with the URLs, inside the worker."""

    def build(urls: Mapping[str, str]) -> ServerParts:
        module, _, function = path.partition(":")
        parts: ServerParts = getattr(importlib.import_module(module), function)(urls)
        return parts

    return build


def settings_of(options: dict[str, Any]) -> ServerSettings:
    """Read settings; addresses are texts, and everything listens on free ports unless told."""
    directory = options.pop("certificates", None)
    pair = [Path(directory, name) for name in ("tls.crt", "tls.key")] if directory else []
    announce = options.pop("announce", None)
    extra = {name: ListenAddress.parse(text) for name, text in options.pop("extra", {}).items()}
    authorities = tuple(map(Path, options.pop("client_authorities", ())))
    clients = TrustedClients(authorities, tuple(options.pop("client_names", ())))
    serves_extender = bool(options.pop("serves_extender", False))
    return ServerSettings(
        tls=CertificateFiles(*pair, clients=clients if authorities else None) if pair else None,
        webhook=ListenAddress.parse(options.pop("webhook", ANY)),
        ops=ListenAddress.parse(options.pop("ops", ANY)),
        extra_listeners=extra,
        announce=Path(announce) if announce else None,
        serves_extender=lambda: serves_extender,
        **options,
    )


def main() -> int:
    """Serve until told to stop."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    logs.configure(options.pop("log_level", "info"))
    build = building(options.pop("parts"))
    return serve(build, settings_of(options))


if __name__ == "__main__":
    sys.exit(main())
