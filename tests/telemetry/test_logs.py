"""JSON lines, whatever is logged."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.telemetry.logs import MAX_QUEUED_RECORDS, BatchHandler, JsonFormatter, configure


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.raiseExceptions
    yield io.StringIO()
    for handler in root.handlers:
        if isinstance(handler, BatchHandler):
            handler.close()
    root.handlers[:], root.level, logging.raiseExceptions = before
    logging.captureWarnings(capture=False)


def written_to(stream: io.StringIO) -> list[dict[str, Any]]:
    """All lines, when the last record is written."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return [json.loads(text) for text in stream.getvalue().splitlines()]


def line(message: str, **extra: Any) -> str:
    record = logging.makeLogRecord(
        {"name": "webhook.test", "levelname": "INFO", "levelno": logging.INFO, "msg": message}
    )
    vars(record).update(extra)
    return JsonFormatter().format(record)


def test_a_line_has_time_level_logger_message_and_the_facts(stream: io.StringIO) -> None:
    configure("info", stream)
    logging.getLogger("webhook.x").info("decided", extra={"uid": "1", "numbers": [1, 2.5, None]})
    (written,) = written_to(stream)
    assert written.pop("time").endswith("Z")
    assert written == {
        "level": "info",
        "logger": "webhook.x",
        "message": "decided",
        "uid": "1",
        "numbers": [1, 2.5, None],
    }


def test_the_time_is_utc_to_the_millisecond() -> None:
    record = logging.makeLogRecord({"msg": "x", "created": 1767600000.0625})
    assert json.loads(JsonFormatter().format(record))["time"] == "2026-01-05T08:00:00.062Z"


def test_what_is_below_the_level_is_dropped(stream: io.StringIO) -> None:
    configure("warning", stream)
    logging.getLogger("webhook.x").info("quiet")
    logging.getLogger("webhook.x").warning("loud")
    assert [line["message"] for line in written_to(stream)] == ["loud"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud' is not one of debug, info, warning, error"):
        configure("loud")


def test_configuring_twice_writes_once(stream: io.StringIO) -> None:
    configure("info", stream)
    configure("info", stream)
    logging.getLogger().error("once")
    assert len(written_to(stream)) == 1


def test_a_traceback_is_a_field(stream: io.StringIO) -> None:
    configure("info", stream)
    try:
        raise KeyError("spec")  # noqa: TRY301
    except KeyError:
        logging.getLogger("webhook.x").exception("failed")
    (written,) = written_to(stream)
    assert written["message"] == "failed"
    assert written["traceback"].endswith("KeyError: 'spec'")


@given(message=st.text(), value=st.text())
def test_any_text_is_one_line_of_plain_ascii(message: str, value: str) -> None:
    written = line(message.replace("%", ""), key=value)
    assert all(0x20 <= ord(character) < 0x7F for character in written)
    assert json.loads(written)["key"] == value


def test_half_a_surrogate_pair_can_be_logged() -> None:
    assert json.loads(line("x", key="\ud800"))["key"] == "\ud800"


def test_a_long_text_is_cut() -> None:
    written = json.loads(line("x", key="y" * 100_000))
    assert (len(written["key"]), written["key"][-4:]) == (1027, "y...")


def test_other_values_are_written_as_text() -> None:
    written = json.loads(line("x", path={"a": {1}}, error=ValueError("no\n")))
    assert (written["path"], written["error"]) == ({"a": [1]}, "no\n")


def test_a_reader_that_is_gone_is_no_error(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("info", stream)
    stream.close()
    logging.getLogger("webhook.x").error("nobody reads this")
    for handler in logging.getLogger().handlers:
        handler.flush()
    assert capsys.readouterr().err == ""


def test_lines_come_without_a_request(stream: io.StringIO) -> None:
    configure("info", stream)
    logging.getLogger("webhook.x").info("soon")
    end = time.monotonic() + 5
    while not stream.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    assert json.loads(stream.getvalue())["message"] == "soon"


def test_lines_of_many_threads_all_come_and_in_their_order(stream: io.StringIO) -> None:
    configure("info", stream)

    def say(who: int) -> None:
        for number in range(100):
            logging.getLogger("webhook.x").info("said", extra={"who": who, "number": number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(say, range(8)))
    lines = written_to(stream)
    for who in range(8):
        assert [line["number"] for line in lines if line["who"] == who] == list(range(100))


def test_a_record_that_cannot_be_written_does_not_stop_others(stream: io.StringIO) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    configure("info", stream)
    logging.getLogger("webhook.x").info("bad", extra={"value": Unprintable()})
    logging.getLogger("webhook.x").info("good")
    assert [line["message"] for line in written_to(stream)] == ["unloggable", "good"]


@pytest.mark.usefixtures("stream")
def test_a_reader_that_is_stuck_holds_no_thread_up_and_learns_what_it_missed() -> None:
    class Stuck(io.StringIO):
        free = threading.Event()

        def write(self, text: str) -> int:
            self.free.wait(30)
            return super().write(text)

    stuck = Stuck()
    configure("info", stuck)
    log = logging.getLogger("webhook.x")
    log.info("first")
    begin = time.monotonic()
    for number in range(2 * MAX_QUEUED_RECORDS):
        log.info("more", extra={"number": number})
    assert time.monotonic() - begin < 10
    stuck.free.set()
    lines = written_to(stuck)
    (lost,) = [line for line in lines if line["message"] == "log lines lost"]
    assert lost["count"] + len([line for line in lines if line["message"] == "more"]) == (
        2 * MAX_QUEUED_RECORDS
    )
    assert lost["count"] > 0


def run_script(text: str) -> list[str]:
    """Run Python code that logs; give the messages it leaves on stderr, in order."""
    start = "import logging, os, sys\nfrom webhook.telemetry import logs\nlogs.configure()\n"
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(text)],
        capture_output=True,
        check=True,
        timeout=30,
    )
    return [json.loads(line)["message"] for line in done.stderr.splitlines()]


def test_the_end_of_the_process_writes_the_rest() -> None:
    messages = run_script("""
        for number in range(500):
            logging.info("line %d", number)
        """)
    assert messages == [f"line {number}" for number in range(500)]


def test_an_abrupt_end_writes_the_rest_when_logging_is_shut_down() -> None:
    messages = run_script("""
        for number in range(500):
            logging.info("line %d", number)
        logging.shutdown()
        logging.info("too late to gather")
        os._exit(0)
        """)
    assert messages == [*(f"line {number}" for number in range(500)), "too late to gather"]


def test_after_a_fork_both_sides_write_each_line_once() -> None:
    messages = run_script("""
        for number in range(200):
            logging.info("before %d", number)
        child = os.fork()
        name = "parent" if child else "child"
        for number in range(200):
            logging.info("%s %d", name, number)
        if child:
            os.waitpid(child, 0)
        """)
    for name in ("before", "parent", "child"):
        assert [text for text in messages if text.startswith(name)] == [
            f"{name} {number}" for number in range(200)
        ]
    # from Python 3.12 on, the interpreter itself warns of a fork beside threads
    ours = [text for text in messages if "multi-threaded" not in text]
    assert len(ours) == 600
