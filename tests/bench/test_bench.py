"""What measures has to run; how fast things are is no test's business."""

from __future__ import annotations

import http.client
import http.server
import itertools
import math
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.bench.embedded import running
from tests.bench.scale import Paged, objects_of
from tests.bench.steady import Steady
from tests.kube.rest.served import served
from tests.operations.scenes import load
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import PODS

ROOT = Path(__file__).parents[2]

_SERVES = """
import sys
from pathlib import Path
from tests.bench.embedded import running

announce = Path(sys.argv[1])
announce.write_text('{"ops": {"url": ""}}')
server = [sys.executable, "-c", "import time; time.sleep(600)"]
with running(server, announce, Path(sys.argv[2])):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.timeout(300)  # two servers are started twice, each of which has a minute for it
def test_the_benchmark_measures_the_core_and_binds_over_https() -> None:
    tiny = ("--seconds", "0.05", "--largest", "100", "--binds", "32")

    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench.run", *tiny],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    decisions = re.findall(r"decisions/s, .*? ([\d,]+)(?: +[\d.]+ x)?$", ran.stdout, re.MULTILINE)
    binds = re.findall(r"bind, decided and reserved +(1|16) ", ran.stdout)
    floors = re.findall(r"Flask allows the same, undecided +(1|16) ", ran.stdout)
    assert len(decisions) == 4, ran.stdout
    assert binds == ["1", "16"], ran.stdout
    assert floors == ["1", "16"], ran.stdout


def test_the_fake_api_server_of_the_benchmark_gives_lists_in_parts() -> None:
    cluster = FakeCluster()
    load(cluster, *objects_of(7, ["team-0", "team-1"]))

    with served(cluster, Paged) as client:
        pages = list(client.pages(PODS, limit=3))

    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({item.key for page in pages for item in page.items}) == 7


def test_the_load_has_its_processors_back_once_the_server_has_ended(tmp_path: Path) -> None:
    announce = tmp_path / "announce.json"
    announce.write_text('{"ops": {"url": ""}}')
    usable = os.sched_getaffinity(0)

    with running(
        [sys.executable, "-c", "import time; time.sleep(600)"], announce, tmp_path / "log"
    ):
        pass

    assert os.sched_getaffinity(0) == usable


def test_no_server_outlives_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SERVES, tmp_path / "announce.json", tmp_path / "log"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == "up\n"
        children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children").read_text()
        (server,) = map(int, children.split())
        bench.kill()

    give_up = time.monotonic() + 30
    while _runs(server) and time.monotonic() < give_up:
        time.sleep(0.05)
    if _runs(server):
        os.kill(server, 9)
        pytest.fail("the server still runs")


class _Answers(http.server.BaseHTTPRequestHandler):
    """Answers every third request with 500."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        is_third = int(self.path.strip("/")) % 3 == 0
        self.send_response(500 if is_third else 201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize("keeps", [True, False])
def test_an_even_load_counts_what_fails_and_leaves_nothing_out(keeps: bool) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)

    def request(number: int) -> tuple[str, str, bytes]:
        return "POST", f"/{number}", b""

    try:
        with Steady(connect, request, b"201 ", 300.0, keeps=keeps, clients=4) as load:
            span = load.span(0.0, time.monotonic() + 0.5)
    finally:
        server.shutdown()
        server.server_close()
    dues = sorted(one.due for one in span.answers)
    assert len(dues) >= 150
    assert [round(after - before, 6) for before, after in itertools.pairwise(dues)] == [
        pytest.approx(1 / 300, abs=1e-5)
    ] * (len(dues) - 1)
    assert len(span.failed) == math.ceil(len(dues) / 3)
    assert span.percentile(0.0) <= span.percentile(0.5) <= span.percentile(1.0)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
