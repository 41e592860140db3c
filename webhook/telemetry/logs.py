"""JSON lines on stderr: a constant message, and the facts as fields.

Whatever people can put into a name comes out escaped, down to plain ASCII: a line of the log is
always one line, and a terminal that shows it cannot be made to do anything. Long texts are cut.
Never logged: bodies of objects, tokens, Secrets.

Lines are written by a thread of their own, many at a time: a thread that answers requests neither
waits for another one's line nor for the reader of the log. What is still to be written when the
process ends is written then.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import deque
from typing import Final, TextIO

import msgspec

MAX_FIELD_CHARACTERS: Final = 1024
"""Longest text of a field; the rest is cut."""

MAX_TRACEBACK_CHARACTERS: Final = 16 * 1024
"""Longest traceback; the end of it, which names the error, is kept."""

BATCH_SECONDS: Final = 0.005
"""How long lines gather before they are written together."""

MAX_QUEUED_RECORDS: Final = 10_000
"""Records that may wait to be written; the reader is stuck when there are more."""

FLUSH_TIMEOUT_SECONDS: Final = 1.0
"""How long the end of the process, and a fork, wait for a reader that is stuck."""

LEVELS: Final = ("debug", "info", "warning", "error")

_OWN_ATTRIBUTES: Final = frozenset(
    vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "color_message"}
)
_ENCODER: Final = msgspec.json.Encoder()
_PLAIN_TYPES: Final = (bool, int, float, type(None))


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, logger, message, then what `extra` holds."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line of ASCII."""
        line: dict[str, object] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shortened(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _OWN_ATTRIBUTES:
                line[name] = _plain(value)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)[-MAX_TRACEBACK_CHARACTERS:]
        return _as_ascii(line)


def _as_ascii(line: dict[str, object]) -> str:
    """Write a line as JSON; quickly, when it needs no escapes."""
    try:
        data = _ENCODER.encode(line)
    except (UnicodeEncodeError, TypeError, msgspec.MsgspecError):
        data = b"\x7f"
    if data.isascii() and b"\x7f" not in data:
        return data.decode("ascii")
    # DEL is the one control character that JSON leaves as it is
    return json.dumps(line, ensure_ascii=True, allow_nan=True).replace("\x7f", "\\u007f")


class BatchHandler(logging.Handler):
    """Hands records to a thread that writes them, in order, some milliseconds later at most.

    When the reader does not keep up, MAX_QUEUED_RECORDS records wait; of those behind it only the
    number is logged. A fork leaves what waits to the parent, and the child has a thread of its own.

    Args:
        stream: Where lines go.
    """

    _records: deque[logging.LogRecord]
    _lost: int
    _wake: threading.Event
    _writing: threading.Lock
    _starting: threading.Lock
    _thread: threading.Thread | None
    _is_closed: bool

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._unwritten = False
        self._renew()
        # a child must not inherit a stream in the middle of a line
        os.register_at_fork(
            before=self._hold, after_in_parent=self._release, after_in_child=self._renew
        )

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a record without the lock that all threads would queue up for."""
        if not self.filter(record):
            return False
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record to be written."""
        if len(self._records) >= MAX_QUEUED_RECORDS:
            self._lost += 1
            return
        self._records.append(record)
        if self._is_closed:
            self.flush()
            return
        if self._thread is None:
            self._start()
        self._wake.set()

    def flush(self) -> None:
        """Write what has been taken so far, unless the reader does not take it."""
        if not self._writing.acquire(timeout=FLUSH_TIMEOUT_SECONDS):
            return
        try:
            lines = [self._line(self._records.popleft()) for _ in range(len(self._records))]
            lost, self._lost = self._lost, 0
            if lost:
                lines.append(self._line(_lost_lines(lost)))
            if lines:
                self._stream.write("".join(lines))
                self._stream.flush()
        except (OSError, ValueError):  # the reader went away, or the stream was closed
            return
        finally:
            self._writing.release()

    def close(self) -> None:
        """Write the rest and end the thread: it must not write while the interpreter ends."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(FLUSH_TIMEOUT_SECONDS)
        self.flush()
        super().close()

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + "\n"
        except Exception as err:  # noqa: BLE001 - a line that cannot be made must not stop others
            return (
                json.dumps({"level": "error", "message": "unloggable", "error": repr(err)}) + "\n"
            )

    def _renew(self) -> None:
        self._records = deque()
        self._lost = 0
        self._wake = threading.Event()
        self._writing = threading.Lock()
        self._starting = threading.Lock()
        self._thread = None
        self._is_closed = False

    def _hold(self) -> None:
        self._unwritten = self._writing.acquire(timeout=FLUSH_TIMEOUT_SECONDS)

    def _release(self) -> None:
        if self._unwritten:
            self._writing.release()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            self.flush()
            time.sleep(BATCH_SECONDS)  # meanwhile a batch gathers


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send the log of the whole process to `stream` as JSON lines; stderr unless given.

    Args:
        level: One of LEVELS: records below it are dropped.
        stream: Where lines go.

    Raises:
        ValueError: The level is not one of LEVELS.
    """
    if level not in LEVELS:
        raise ValueError(f"log level: {level!r} is not one of {', '.join(LEVELS)}")
    handler = BatchHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for former in root.handlers:
        former.flush()
        if isinstance(former, BatchHandler):
            former.close()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # no line says where in the code, or on which thread, it was logged; finding out takes time
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - as its manual advises
    # a reader that went away must not turn every log call into a traceback
    logging.raiseExceptions = False
    logging.captureWarnings(capture=True)


def _lost_lines(count: int) -> logging.LogRecord:
    facts = {"name": __name__, "levelname": "WARNING", "msg": "log lines lost", "count": count}
    return logging.makeLogRecord(facts)


def _time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def _plain(value: object) -> object:
    if isinstance(value, _PLAIN_TYPES):
        return value
    if isinstance(value, dict):
        return {shortened(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return shortened(str(value))


def shortened(text: str) -> str:
    """Return a text with no more than a line shows: lines wait in memory until they are written."""
    return text if len(text) <= MAX_FIELD_CHARACTERS else f"{text[:MAX_FIELD_CHARACTERS]}..."
