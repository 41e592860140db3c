"""What measures has to run; how fast things are is no test's business."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.timeout(300)  # two servers are started twice, each of which has a minute for it
def test_the_benchmark_measures_the_core_and_binds_over_https() -> None:
    tiny = ("--seconds", "0.05", "--largest", "100", "--binds", "32")

    ran = subprocess.run(
        [sys.executable, "scripts/bench_run.py", *tiny],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    decisions = re.findall(r"decisions/s, .*? ([\d,]+)(?: +[\d.]+ x)?$", ran.stdout, re.MULTILINE)
    binds = re.findall(r"bind, decided and reserved +(1|16) ", ran.stdout)
    assert len(decisions) == 4, ran.stdout
    assert binds == ["1", "16"], ran.stdout
