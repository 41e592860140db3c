"""What holds for a process as a whole: as whom it stands for election, and its threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from webhook.cli.server_options import unique_identity
from webhook.operations.leader import Holding


def test_a_restarted_process_does_not_take_itself_for_its_predecessor() -> None:
    first, second = (unique_identity("here", "pod-1") for _ in range(2))
    assert first.namespace == second.namespace == "here"
    assert first.name != second.name


@pytest.mark.parametrize("host", ["pod-1", "a", "controller-5d8f9-x2x_4", "node.example"])
def test_where_it_runs_is_known_from_outside(host: str) -> None:
    assert Holding(unique_identity("here", host).name).host == host


THREADS = """
import sys, threading
from webhook.cli import main
from webhook.jsonfields.encoding import decode_json
sys.argv = ["deferred-quota", "--version"]
try:
    main()
except SystemExit:
    pass
def run():
    assert threading.stack_size() == 2**24
    text = b'{"f:a":' * 9_900 + b"{}" + b"}" * 9_900
    assert decode_json(text) == decode_json(text)
    print("decoded")
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def test_threads_have_a_stack_for_what_nests_deep_whatever_the_limits_are() -> None:
    """On CPython 3.13 such a text takes more than 3 MiB of it, and no error ends at the stack."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -s 2048; exec "$0" -c "$1"', sys.executable, THREADS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["decoded"]), done.stderr
