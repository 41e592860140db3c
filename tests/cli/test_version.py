"""`deferred-quota version`."""

from __future__ import annotations

import json
import platform

from click.testing import CliRunner

from webhook import __version__
from webhook.cli import cli


def test_text_says_version_python_and_rules() -> None:
    assert CliRunner().invoke(cli, ["version"]).stdout == (
        f"deferred-quota {__version__}\npython {platform.python_version()}\nkubernetes rules 1.36\n"
    )


def test_json_says_the_same() -> None:
    assert json.loads(CliRunner().invoke(cli, ["version", "-o", "json"]).stdout) == {
        "schemaVersion": 1,
        "version": __version__,
        "python": platform.python_version(),
        "kubernetesRules": "1.36",
    }
