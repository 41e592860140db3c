"""The keyboard ends a command while the API server leaves calls of several threads unanswered."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.admission.handlers.harness import eventually
from tests.builders import a_job
from tests.cli.clusters import write_kubeconfig
from tests.kube.rest.served import served
from tests.operations.jobs import a_pod_of_the_job
from tests.operations.scenes import NAMESPACE, a_cluster, a_gated_pod, a_namespace
from webhook.cli import ExitCode
from webhook.fakecluster.rest.apiserver import ApiServer
from webhook.fakecluster.storage import FakeCluster
from webhook.operations.gates import WORKERS

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LATE_SECONDS = 20.0
"""After how long a call is answered; a client gives up after ten seconds, and asks again."""
SOON_SECONDS = 8.0
PODS = 5 * WORKERS


class Silent:
    """An API server that leaves some calls unanswered."""

    def __init__(self, method: str, path: str) -> None:
        self.asked: list[str] = []
        self.over = threading.Event()
        self._silent = re.compile(rf"{method} .*{path}")

    def app(self, cluster: FakeCluster) -> Answering:
        return Answering(cluster, self)

    def hold(self, method: str, path: str) -> None:
        if self._silent.fullmatch(f"{method} {path}"):
            self.asked.append(path)
            self.over.wait(LATE_SECONDS)


class Answering(ApiServer):
    def __init__(self, cluster: FakeCluster, silent: Silent) -> None:
        super().__init__(cluster)
        self._silent = silent

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self._silent.hold(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        return super().__call__(environ, start_response)


@contextmanager
def running(
    cluster: FakeCluster, silent: Silent, directory: Path, *command: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a command, and go on when it waits for answers on all of its threads."""
    with served(cluster, silent.app) as client:
        kubeconfig = write_kubeconfig(directory, client.config.server)
        process = subprocess.Popen(
            [sys.executable, "-m", "webhook", *command, "--kubeconfig", str(kubeconfig)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            eventually(lambda: len(silent.asked) >= WORKERS, "all threads wait")
            yield process
        finally:
            silent.over.set()
            process.kill()
            process.communicate()


def seconds_until_interrupted(process: subprocess.Popen[str]) -> float:
    """Press Ctrl-C; return after how long the command has ended."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=3 * LATE_SECONDS)
    assert process.returncode == ExitCode.INTERRUPTED
    told = [line for line in err.split("\n") if line and not line.startswith("warning: ")]
    assert told == ["Interrupted"]
    return time.monotonic() - began


@pytest.mark.timeout(90)
def test_usage_that_is_being_read_is_not_waited_for(tmp_path: Path) -> None:
    pods = [a_pod_of_the_job(f"pod-{number}") for number in range(PODS)]
    cluster = a_cluster(a_namespace(), a_job(), *pods)
    resize = ("job", "resize", "train", "-n", NAMESPACE, "--container", "main")
    silent = Silent("GET", "/apis/metrics.k8s.io/.*")
    with running(cluster, silent, tmp_path, *resize, "--from-usage", "p95") as process:
        assert seconds_until_interrupted(process) < SOON_SECONDS


@pytest.mark.timeout(90)
def test_gates_that_are_being_removed_are_not_waited_for_a_second_time(tmp_path: Path) -> None:
    cluster = a_cluster(a_namespace(), *(a_gated_pod(f"pod-{number}") for number in range(PODS)))
    silent = Silent("PATCH", "/pods/.*")
    with running(cluster, silent, tmp_path, "disable", NAMESPACE) as process:
        process.send_signal(signal.SIGINT)  # lets what is under way come to its end
        time.sleep(1)
        assert process.poll() is None
        assert seconds_until_interrupted(process) < SOON_SECONDS
