"""Kubeconfig files for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path


def encoded(data: bytes) -> str:
    """Data as it stands in a kubeconfig."""
    return base64.b64encode(data).decode()


def a_kubeconfig(
    directory: Path,
    *,
    user: Mapping[str, object] | None = None,
    cluster: Mapping[str, object] | None = None,
    name: str = "config",
    context: str = "lab",
    current: str | None = "lab",
) -> Path:
    """A file with one context, whose user is `admin` and whose cluster is `main`."""
    shown: dict[str, object] = {"server": "https://cluster.example:6443", **(cluster or {})}
    config: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Config",
        "contexts": [{"name": context, "context": {"cluster": "main", "user": "admin"}}],
        "clusters": [{"name": "main", "cluster": shown}],
        "users": [{"name": "admin", "user": {} if user is None else dict(user)}],
        **({} if current is None else {"current-context": current}),
    }
    path = directory / name
    path.write_text(json.dumps(config))
    return path


def a_plugin(directory: Path, answer: str, name: str = "plugin") -> Path:
    """An exec plugin: it counts its calls in `calls` beside it, and then does what is given."""
    path = directory / name
    path.write_text(
        f'#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" >> "$(dirname "$0")/calls"\n{answer}\n'
    )
    path.chmod(0o755)
    return path


def printing(**status: object) -> str:
    """A shell command that prints a credential."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    return f"cat <<'END'\n{json.dumps(credential)}\nEND"


def an_exec(command: Path | str, **fields: object) -> dict[str, object]:
    """A user that asks a plugin."""
    api = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": api, "command": str(command), **fields}}


def calls_of(directory: Path) -> list[str]:
    """What a plugin was told, call by call."""
    path = directory / "calls"
    return path.read_text().splitlines() if path.exists() else []
