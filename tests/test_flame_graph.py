"""The flame graph of a bind, from what perf says: scripts/flame_graph.py."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


def sample(*functions: str) -> str:
    """Return a sample as `perf script` prints it, callees first, with a frame of C for each."""
    lines = ["python 1 2.3:    6666666 cpu-clock: "]
    for function in functions:
        lines += [
            f"\t 85 py::{function}+0x5 (/tmp/jitted-1-1.so)",
            "\t 9 _PyEval_EvalFrame+0x1 (a)",
        ]
    return "\n".join([*lines, "", ""])


def drawn(text: str) -> dict[str, tuple[float, float]]:
    """Return the left end and the width of each function that is drawn for what perf says."""
    program = [sys.executable, str(ROOT / "scripts/flame_graph.py")]
    done = subprocess.run(program, input=text, capture_output=True, text=True, check=True)
    boxes = {}
    for group in ET.fromstring(done.stdout).findall(f"{SVG}g"):  # noqa: S314 - the script's
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert title.text is not None
        assert box is not None
        boxes[title.text] = (float(box.attrib["x"]), float(box.attrib["width"]))
    return boxes


def test_callees_share_the_width_of_their_caller() -> None:
    main, serve = "<module>:/a/webhook/__main__.py", "serve:/a/webhook/admission/worker.py"
    decide = "decide:/a/webhook/quota/ledger.py"
    parse = "Parser.<locals>.next:/a/.venv/lib/python3.13/site-packages/gunicorn/parser.py"
    text = 3 * sample(decide, serve, main) + sample(parse, serve, main) + sample()
    assert drawn(text) == {
        "all: 4 samples: 100.0%": (0, 1200),
        "serve (webhook/admission/worker.py): 100.0%": (0, 1200),
        "Parser.<locals>.next (gunicorn/parser.py): 25.0%": (0, 300),
        "decide (webhook/quota/ledger.py): 75.0%": (300, 900),
    }


def test_a_thread_of_a_library_alone_counts_for_nothing() -> None:
    ours = sample("run:/a/webhook/kube/informer.py")
    library = sample("select:/usr/lib/python3.13/selectors.py")
    assert "all: 1 samples: 100.0%" in drawn(ours + library)
