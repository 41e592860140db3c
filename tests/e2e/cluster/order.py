"""In which order the files are run: what takes longest begins first, so that nothing is left alone.

Nothing depends on the order; outages come first, and a file that is not named here comes last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LONGEST: Final = (
    "elastic/test_reclaim_stories",
    "certificates/test_rotation_under_load",
    "install/test_install",
    "elastic/test_reclaim",
    "shared/test_cluster_quotas",
    "jobs/test_gates",
    "install/test_uninstall",
    "commands/test_explain",
    "queue/test_line_stories",
    "certificates/test_cert_manager",
    "install/test_moving",
    "commands/test_emergency",
    "commands/test_operations",
    "install/test_configuration_changes",
    "admission/test_large_pods",
    "admission/test_creation",
    "outages/test_under_load",
    "install/test_chart_releases",
    "namespaces/test_shadow",
    "controlplane/test_live_client",
    "admission/test_differential",
    "queue/test_gates",
    "admission/test_node_model",
    "queue/test_reasons",
    "ledger/test_expiry",
    "controlplane/test_plane",
    "queue/test_preemption",
    "namespaces/test_many_namespaces",
    "admission/test_class_rules",
    "queue/test_extender",
    "controlplane/test_contract",
    "jobs/test_stories",
    "jobs/test_rules",
    "admission/test_races",
)
"""They take from four minutes, most of which is waiting, down to a quarter of one.

To install and to uninstall is to wait: they do not begin together, but beside what computes.
"""


def place(path: Path) -> int:
    """Return at which place a file below this directory is run; equal ones stay as they are."""
    name = f"{path.parent.name}/{path.stem}"
    if name in _LONGEST:
        return _LONGEST.index(name)
    return -1 if path.parent.name == "outages" else len(_LONGEST)
