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

COLLECTIONS = """
import gc, json, sys
from webhook.cli import cli
before = sum(each["collections"] for each in gc.get_stats())
try:
    cli(["serve"])  # which ends for lack of certificates
finally:
    collections = sum(each["collections"] for each in gc.get_stats()) - before
    print(json.dumps([collections, gc.isenabled(), "flask" in sys.modules]))
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


def test_help_of_each_command_has_its_exit_statuses() -> None:
    context = click.Context(cli)
    lacking = []
    for name, *below in filter(None, every_command()):
        command = cli.get_command(context, name)
        for each in below:
            assert isinstance(command, click.Group)
            command = command.get_command(context, each)
        assert command is not None
        if not isinstance(command, click.Group) and "Exit status:" not in str(command.epilog):
            lacking.append(" ".join((name, *below)))
    assert lacking == ["completion", "version"], "which fail by their usage alone"


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


def test_an_address_that_cannot_be_read_is_refused_before_a_server_is_imported() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, "serve", "--listen", "nowhere"],
        capture_output=True, text=True, check=False, env=dict(os.environ),
    )  # fmt: skip

    assert "'nowhere' is not an address" in ran.stderr
    imported = json.loads(ran.stderr.splitlines()[-1])
    assert {"cryptography", "flask", "gunicorn", "msgspec"}.isdisjoint(imported)


def test_a_server_is_imported_with_hardly_a_look_for_garbage() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COLLECTIONS],
        capture_output=True, text=True, check=False, env=dict(os.environ),
    )  # fmt: skip

    collections, is_enabled, is_imported = json.loads(ran.stdout)
    assert is_imported
    assert is_enabled
    assert collections < 10


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
