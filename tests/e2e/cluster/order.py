"""In which order the files are run: what takes longest begins first, so that nothing is left alone.

Nothing depends on the order; a file that is not named here comes after those that are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LONGEST: Final = (
    "test_install",
    "test_uninstall",
    "test_job_gates",
    "test_line_stories",
    "test_cluster_quotas",
    "test_outages",
    "test_shadow",
    "test_live_client",
    "test_plane",
    "test_differential",
    "test_reasons",
    "test_expiry",
    "test_operations",
    "test_extender",
    "test_class_rules",
    "test_many_namespaces",
    "test_job_rules",
)
"""They take from two minutes down to a quarter of one."""


def place(path: Path) -> int:
    """Return at which place a file of this directory is run; equal ones stay as they are."""
    name = path.stem
    return _LONGEST.index(name) if name in _LONGEST else len(_LONGEST)
