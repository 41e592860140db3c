"""What a reload of the configuration changes for the controller, in a whole engine."""

from __future__ import annotations

import json
from pathlib import Path

from tests.admission.handlers.harness import AdmissionHarness, admission_harness, eventually
from tests.builders import a_quota
from webhook.kube.api import QUOTA_LEDGERS, NotFoundError

NS = "team-a"


def counts(harness: AdmissionHarness) -> bool:
    """Say whether the ledger counts a quota."""
    try:
        found = harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NS)
    except NotFoundError:
        return False
    status = found.get("status")
    return isinstance(status, dict) and bool(status.get("quotas"))


def exempt(directory: Path, *names: str) -> None:
    configure(directory, exemptNamespaces=names)


def configure(directory: Path, **fields: object) -> None:
    path = directory / "configuration.yaml"
    text = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**text, **fields}), encoding="utf-8")


def test_namespaces_are_counted_while_they_are_not_exempt(tmp_path: Path) -> None:
    settings = {"exemptNamespaces": [NS]}
    with admission_harness(a_quota("p1"), directory=tmp_path, settings=settings) as harness:
        assert not counts(harness)
        exempt(tmp_path)
        eventually(lambda: counts(harness), "the namespace is counted")
        exempt(tmp_path, NS)
        eventually(lambda: not counts(harness), "the namespace is left")
        exempt(tmp_path, "team-b")
        eventually(lambda: counts(harness), "the namespace is counted again")


def test_handlers_decide_again_once_the_ledger_counts_terminating_pods_as_they_do(
    tmp_path: Path,
) -> None:
    with admission_harness(a_quota("p1"), directory=tmp_path, settings={}) as harness:
        released = counted_as(harness)
        configure(tmp_path, terminatingPods="Hold")
        eventually(lambda: counted_as(harness) == f"{released}-hold", "the ledger is counted anew")
        configure(tmp_path, terminatingPods="Release")
        eventually(lambda: counted_as(harness) == released, "the ledger is counted as before")


def counted_as(harness: AdmissionHarness) -> str:
    """Return the hash under which the ledger counts the quota."""
    status = harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NS)["status"]
    assert isinstance(status, dict)
    found: str = status["quotas"][0]["observed"]["specHash"]
    return found
