"""The proxy process as its user sees it: links to open, break and mend."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, Self

from tests.torture.children import ROOT, command_of


class Links:
    """Starts the proxy process; leaving the block ends it. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            command_of("tests.torture.proxy"),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def open(self, link: str, targets: Sequence[tuple[str, int]], *, port: int = 0) -> int:
        """Open a link and return its port."""
        answer = self._ask(do="open", link=link, targets=list(targets), port=port)
        return int(answer["port"])

    def set(self, link: str, **faults: float | bool) -> None:
        """Set `delay`, `refuse` or `hold` of a link."""
        self._ask(do="set", link=link, **faults)

    def cut(self, link: str, *, older: float = 0.0) -> int:
        """Close the link's connections of at least this age; return how many."""
        return int(self._ask(do="cut", link=link, older=older)["connections"])

    def drop(self, link: str) -> int:
        """Lose the next answer on each connection that is open now; return how many there are."""
        return int(self._ask(do="drop", link=link)["connections"])

    def freeze(self, link: str, *, older: float) -> int:
        """Hold what is said on the link's connections of at least this age; return how many."""
        return int(self._ask(do="freeze", link=link, older=older)["connections"])

    def thaw(self, link: str) -> None:
        """Let go what was frozen: it arrives late."""
        self._ask(do="thaw", link=link)

    def stats(self) -> dict[str, dict[str, int]]:
        """Return counts of each link."""
        return self._ask(do="stats")

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        """Return the links."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.close()

    def _ask(self, **command: object) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline() or b"{}")
        if "error" in answer:
            raise RuntimeError(f"proxy: {answer['error']}")
        return answer
