"""An audit log of what service accounts ask an API server for, where a directory is named."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "DEFERRED_QUOTA_AUDIT"
"""Names the directory in which each API server has a log of its own."""

_OWN: Final = "system:serviceaccounts:kube-system"
"""The control plane's own controllers."""
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],  # a watch that is never ended has but begun
    "rules": [
        {"level": "None", "userGroups": [_OWN]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}


def audit_flags(
    directory: Path, port: int, environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Return the flags of an API server, with which it keeps its log; none where none is wanted.

    Args:
        directory: Where its policy is written.
        port: Where it listens.
        environment: Variables.
    """
    wanted = environment.get(VARIABLE, "")
    if not wanted:
        return []
    logs = Path(wanted).absolute()
    logs.mkdir(parents=True, exist_ok=True)
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(_POLICY))
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={logs / f'{os.getpid()}-{port}.log'}",
        "--audit-log-maxsize=1000",
    ]
