"""Commands as an administrator of a control plane runs them."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.objects import Object
from webhook.cli import cli


def run(plane: ControlPlane, *arguments: str) -> Result:
    """Run a command, whatever its end."""
    return CliRunner().invoke(cli, [*arguments, "--kubeconfig", str(plane.kubeconfig())])


def printed(plane: ControlPlane, *arguments: str, code: int = 0) -> str:
    """Run a command; return all that it printed."""
    done = run(plane, *arguments)
    assert done.exit_code == code, done.output
    return done.output


def doctor(plane: ControlPlane, *arguments: str) -> Object:
    """Return what `doctor` says after one look."""
    found: Object = json.loads(
        run(plane, "doctor", "--pause", "0", "-o", "json", *arguments).stdout
    )
    return found


def findings(plane: ControlPlane, *arguments: str) -> list[Object]:
    """Return what `doctor` finds at one look."""
    found: list[Object] = doctor(plane, *arguments)["findings"]
    return found
