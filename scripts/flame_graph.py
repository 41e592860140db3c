"""A flame graph of the webhook: what `perf script` prints of its Python functions, in; SVG, out.

Width is the share of processor time, below is the caller; names show in full under the pointer.
docs/performance.md has the commands before it. A sample counts from the first function of the
product on, without the command line; what C does counts for the function that calls it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

WIDTH: Final = 1200
ROW: Final = 16
LETTER: Final = 6.2
"""Width of a character, with a margin for broad ones."""
LEAST: Final = 0.005
"""Share below which a function is left out."""
COLOURS: Final = {"quota": "#f2c14e", "admission": "#f78154", "state": "#4d9078", "kube": "#8ab4c9"}
"""By package of the product."""
LAUNCHERS: Final = ("", "__main__", "cli")
"""Packages that only lead to what runs: libraries and the command line."""

_FRAME: Final = re.compile(r"\bpy::(?P<name>.+):(?P<path>/.+\.py)\+0x")
_PLACE: Final = re.compile(r".*/(?:site-packages|lib/python3\.\d+)/|.*/(?=webhook/)")


@dataclass(slots=True)
class Node:
    """A function, as it is called by those below it."""

    samples: int = 0
    callees: dict[str, Node] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """How many functions lie on top of each other, with this one."""
        return 1 + max((one.height for one in self.callees.values()), default=0)


def stacks(text: str) -> Iterator[list[str]]:
    """Yield the functions of each sample, callers first; nothing where Python calls none."""
    for sample in text.split("\n\n"):
        found = [_FRAME.search(line) for line in sample.splitlines()]
        frames = [f"{one['name']} ({_PLACE.sub('', one['path'])})" for one in found if one]
        frames.reverse()
        starts = (i for i, frame in enumerate(frames) if _package(frame) not in LAUNCHERS)
        yield frames[next(starts, len(frames)) :]


def tree(samples: Iterator[list[str]]) -> Node:
    """Return the calls of all samples, added up."""
    root = Node()
    for frames in samples:
        node = root
        for frame in ["all", *frames] if frames else ():
            node = node.callees.setdefault(frame, Node())
            node.samples += 1
    return root.callees["all"]


def boxes(node: Node, name: str, left: float, level: int, whole: int) -> Iterator[str]:
    """Yield what is drawn of a function and those that it calls."""
    share = node.samples / whole
    if share < LEAST:
        return
    width = WIDTH * share
    shown = name[: int(width / LETTER)] if width > 4 * LETTER else ""
    colour, top = COLOURS.get(_package(name), "#d9d9d9"), -ROW * (level + 1)
    yield (
        f'<g><title>{escape(name)}: {share:.1%}</title><rect x="{left:.1f}" y="{top}" '
        f'width="{width:.1f}" height="{ROW - 1}" fill="{colour}"/>'
        f'<text x="{left + 2:.1f}" y="{top + 11}">{escape(shown)}</text></g>'
    )
    for callee, below in sorted(node.callees.items()):
        yield from boxes(below, callee, left, level + 1, whole)
        left += WIDTH * below.samples / whole


def _package(frame: str) -> str:
    """Return the package of the product that a function is of; empty for a library's."""
    found = re.search(r"\(webhook/(\w+)", frame)
    return found[1] if found else ""


def main() -> None:
    """Read standard input, write standard output."""
    whole = tree(stacks(sys.stdin.read()))
    height = ROW * whole.height
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-height} {WIDTH} {height}" '
        'font-family="monospace" font-size="10">'
    )
    print(*boxes(whole, f"all: {whole.samples} samples", 0.0, 0, whole.samples), sep="\n")
    print("</svg>")


if __name__ == "__main__":
    main()
