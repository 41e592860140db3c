"""In which order the files are run: what takes longest begins first, so that nothing is left alone.

Nothing depends on the order; a file that is not named here comes after those that are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LONGEST: Final = (
    "test_rotation_under_load",
    "test_install",
    "test_cluster_quotas",
    "test_job_gates",
    "test_uninstall",
    "test_explain",
    "test_line_stories",
    "test_operations",
    "test_creation",
    "test_outages",
    "test_chart_releases",
    "test_reclaim",
    "test_shadow",
    "test_live_client",
    "test_differential",
    "test_gates",
    "test_node_model",
    "test_reasons",
    "test_expiry",
    "test_plane",
    "test_preemption",
    "test_many_namespaces",
    "test_class_rules",
    "test_extender",
    "test_contract",
    "test_job_stories",
    "test_job_rules",
    "test_races",
)
"""They take from four minutes, most of which is waiting, down to a quarter of one.

To install and to uninstall is to wait: they do not begin together, but beside what computes.
"""


def place(path: Path) -> int:
    """Return at which place a file of this directory is run; equal ones stay as they are."""
    name = path.stem
    return _LONGEST.index(name) if name in _LONGEST else len(_LONGEST)
