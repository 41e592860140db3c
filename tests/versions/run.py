"""`scripts/versions VERSION...`: the end-to-end tests on several versions of Kubernetes.

Versions are built first, each once. A test that needs what a version does not have is skipped, by
what the API server itself says. Exits with 1 if a test failed, after the table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import ASSETS, BinariesError
from tests.controlplane.versions import provide_version
from tests.versions.table import as_markdown, read_report

CLUSTER: Final = Path("tests/e2e/cluster")
STORIES: Final = (
    "install/test_install.py",
    "install/test_uninstall.py",
    "install/test_another_namespace.py",
    "install/test_chart_releases.py",
    "controlplane/test_smoke.py",
    "admission/test_binds.py",
    "queue/test_gates.py",
    "admission/test_created_with_node.py",
    "admission/test_deadlines.py",
    "admission/test_resizes.py",
    "admission/test_resizes_by_update.py",
    "namespaces/test_mask.py",
    "ledger/test_quota_edits.py",
    "queue/test_workloads.py",
    "jobs/test_gates.py",
    "jobs/test_refusals.py",
    "jobs/test_stories.py",
    "elastic/test_elastic_quotas.py",
    "shared/test_cluster_quotas.py",
    "commands/test_explain.py",
    "install/test_identities.py",
    "commands/test_operations.py",
    "commands/test_emergency.py",
)
"""What differs by version first: what is installed, who is asked, what objects have."""


def main(arguments: Sequence[str]) -> int:
    """Run from the command line."""
    options = _parser().parse_args(arguments)
    everything = [str(CLUSTER / story) for story in STORIES]
    paths = options.test or ([str(CLUSTER)] if options.all else everything)
    found, codes = {}, []
    with tempfile.TemporaryDirectory(prefix="versions-") as kept:
        for version in options.version:
            try:
                directory = provide_version(version, _say)
            except BinariesError as err:
                _say(str(err))
                return 1
            report = Path(kept) / f"{directory.name}.xml"
            began = time.monotonic()
            codes.append(_run(directory, report, paths))
            _say(f"{directory.name}: {(time.monotonic() - began) / 60:.0f} minutes")
            if report.exists():
                found[directory.name] = read_report(report)
    print(as_markdown(found))
    return int(any(codes))


def _run(directory: Path, report: Path, paths: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "--override-ini", "testpaths=", "-n", "0", "-q"]
    command += ["--timeout", "300", f"--junitxml={report}", *paths]
    environment = {**os.environ, ASSETS: str(directory)}
    environment.setdefault("DEFERRED_QUOTA_E2E", "1")
    # standard output is for the table
    return subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/versions", description=__doc__)
    parser.add_argument("version", nargs="+", help="a release of Kubernetes, such as 1.30")
    parser.add_argument("--all", action="store_true", help="all end-to-end tests, not the chosen")
    parser.add_argument("--test", action="append", help="a file of tests; repeatable")
    return parser


def _say(line: str) -> None:
    print(f"versions: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
