"""Commands do not wait for what they do not need: help for nothing, a webhook for no controller."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import pytest

from webhook.cli import cli
from webhook.cli.app import COMMANDS

HEAVY = (
    "cryptography", "flask", "gunicorn", "kubernetes", "msgspec", "prometheus_client", "yaml",
    "webhook.admission", "webhook.kube", "webhook.config", "webhook.controllers",
    "webhook.fakecluster", "webhook.install", "webhook.operations", "webhook.quota.objects.model",
    "webhook.quota.amounts.quantity", "webhook.runtime", "webhook.telemetry", "webhook.tls",
)  # fmt: skip
"""Packages that take tenths of a second, and those of ours that import them."""

PROGRAM = """
import json, sys
from webhook.cli import cli
try:
    cli(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

SERVE = "import json, sys, webhook.cli.serve; print(json.dumps([*sys.modules]))"


def every_command() -> list[tuple[str, ...]]:
    """Return the path of each command, and of those below it."""
    found: list[tuple[str, ...]] = [()]
    context = click.Context(cli)
    for name in COMMANDS:
        found.append((name,))
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            found += [(name, below) for below in command.list_commands(context)]
    return found


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_help_imports_nothing_heavy(path: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *path, "--help"],
        capture_output=True, text=True, check=False, env=dict(os.environ),
    )  # fmt: skip

    assert ran.stdout.startswith("Usage:"), ran.stderr
    imported = json.loads(ran.stderr.splitlines()[-1])
    heavy = [
        name for name in imported if any(name == one or name.startswith(f"{one}.") for one in HEAVY)
    ]
    assert heavy == []


def test_a_webhook_imports_no_controller_and_judges_no_nodes() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SERVE],
        capture_output=True, text=True, check=True, env=dict(os.environ),
    )  # fmt: skip

    others = (
        "webhook.fakecluster",
        "webhook.operations.explain",
        "webhook.page",
        "webhook.quota.nodes",
    )
    loops = (
        "webhook.controllers.ledger",
        "webhook.controllers.queue",
        "webhook.controllers.mask.controller",
    )
    imported = json.loads(ran.stdout)
    assert [name for name in imported if name.startswith((*others, *loops))] == []
