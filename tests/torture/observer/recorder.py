"""Writes down the history of pods, quotas and ledgers while it happens, in a process of its own.

`python -m tests.torture.observer.recorder --etcd URL --prefix torture- --from REVISION --out FILE`

Ends with SIGTERM, and with an error if any of the history is lost.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from tests.torture.children import ROOT, command_of
from tests.torture.observer.etcd import Change, EtcdHistory
from tests.torture.observer.facts import (
    Fact,
    PodFact,
    cluster_fact,
    from_line,
    ledger_fact,
    pod_fact,
    quota_fact,
    space_fact,
    to_line,
)

_Reader: TypeAlias = Callable[[dict[str, Any], Change], Fact]


def _read_pod(pod: dict[str, Any], change: Change) -> Fact:
    return pod_fact(
        pod,
        revision=change.revision,
        at=time.monotonic(),
        wall=time.time(),
        is_deleted=change.is_deleted,
    )


def _read_quota(quota: dict[str, Any], change: Change) -> Fact:
    return quota_fact(
        quota, revision=change.revision, at=time.monotonic(), is_deleted=change.is_deleted
    )


def _read_ledger(ledger: dict[str, Any], change: Change) -> Fact:
    return ledger_fact(
        ledger, revision=change.revision, at=time.monotonic(), is_deleted=change.is_deleted
    )


def _read_space(namespace: dict[str, Any], change: Change) -> Fact:
    return space_fact(
        namespace, revision=change.revision, at=time.monotonic(), is_deleted=change.is_deleted
    )


def _read_cluster_quota(quota: dict[str, Any], change: Change) -> Fact:
    return cluster_fact(
        quota, revision=change.revision, at=time.monotonic(), is_deleted=change.is_deleted
    )


_KINDS: Final[tuple[tuple[str, _Reader], ...]] = (
    ("/registry/pods/", _read_pod),
    ("/registry/resourcequotas/", _read_quota),
    ("/registry/deferredquota.io/quotaledgers/", _read_ledger),
    ("/registry/namespaces/", _read_space),
    ("/registry/deferredquota.io/clusterdeferredquotas/", _read_cluster_quota),
)


def read_change(change: Change) -> Fact:
    """Read one revision of one object.

    Raises:
        ValueError: It is not stored as JSON, or is none of the kinds.
    """
    for prefix, read in _KINDS:
        if change.key.startswith(prefix):
            if not change.value.startswith(b"{"):
                raise ValueError(
                    f"{change.key} is not stored as JSON: start the API server with"
                    " --storage-media-type=application/json"
                )
            return read(msgspec.json.decode(change.value), change)
    raise ValueError(f"{change.key} is neither a pod nor a quota nor a ledger")


class Recorder:
    """Follows all kinds, each on a thread, into one file of lines."""

    def __init__(self, url: str, prefix: str, revision: int, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._pods: dict[str, PodFact] = {}
        self.error: BaseException | None = None
        self._threads = [
            threading.Thread(
                target=self._follow,
                args=(
                    EtcdHistory(
                        url,
                        f"{start}{prefix}",
                        f"{start}{prefix}\x7f",
                        revision=revision,
                        is_stopping=self._ended.is_set,
                    ),
                ),
                daemon=True,
            )
            for start, _ in _KINDS
        ]

    def run(self) -> None:
        """Follow until `stop`, or until the history is lost.

        Raises:
            BaseException: What ended a thread.
        """
        for thread in self._threads:
            thread.start()
        self._ended.wait()
        with self._lock:
            self._out.flush()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """End `run`."""
        self._ended.set()

    def _follow(self, history: EtcdHistory) -> None:
        try:
            for change in history:
                self._note(read_change(change))
        except BaseException as err:  # noqa: BLE001 - outermost frame: `run` raises it
            self.error = err
            self._ended.set()

    def _note(self, fact: Fact) -> None:
        if isinstance(fact, PodFact):
            if fact.says_the_same_as(self._pods.get(fact.uid)):
                return
            if fact.is_live:
                self._pods[fact.uid] = fact
            else:
                self._pods.pop(fact.uid, None)
        with self._lock:
            self._out.write(to_line(fact))
            self._out.flush()


@dataclass(slots=True)
class Recording:
    """A recorder that runs, and its file."""

    process: subprocess.Popen[bytes]
    path: Path
    log: Path

    @classmethod
    def start(cls, etcd_url: str, *, prefix: str, revision: int, directory: Path) -> Recording:
        """Start to record everything from a revision on, in namespaces with a prefix."""
        path, log = directory / "history.jsonl", directory / "recorder.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                command_of(
                    "tests.torture.observer.recorder",
                    *("--etcd", etcd_url, "--prefix", prefix),
                    *("--from", str(revision), "--out", str(path)),
                ),
                cwd=ROOT,
                stderr=errors,
            )
        return cls(process, path, log)

    def check(self) -> None:
        """Raise if it has ended.

        Raises:
            RuntimeError: It has, so some of the history is not recorded.
        """
        if self.process.poll() is not None:
            raise RuntimeError(f"the recorder has ended:\n{self.log.read_text()}")

    def stop(self) -> None:
        """End it; everything that it has seen is in the file then."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)

    def facts(self) -> list[Fact]:
        """Read everything so far, in the order of revisions."""
        return sorted(read_lines(self.path), key=lambda fact: fact.revision)


def read_lines(path: Path) -> Iterator[Fact]:
    """Read the facts of a file; a last line that is not whole is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield from_line(line)


def main() -> int:
    """Record until told to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--etcd", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--from", dest="revision", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with options.out.open("ab") as out:
        recorder = Recorder(options.etcd, options.prefix, options.revision, out)
        signal.signal(signal.SIGTERM, lambda *_: recorder.stop())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run ends it when all is recorded
        recorder.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
