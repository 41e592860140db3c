"""The server process: gunicorn with one worker, three kinds of listeners, start and stop.

All sockets are opened before the fork, so that a port in use is an error at once and a worker that
had to be replaced finds them again. Everything with threads is made in the worker.

Announcement: when the worker listens, one log line `listening` and, if asked for, a JSON file:
`{"pid": 7, "webhook": {"url": "https://127.0.0.1:40123", "host": "127.0.0.1", "port": 40123},
"ops": {...}, "listeners": {"api": {...}}}`; `pid` is the process to signal.

Stop: on SIGTERM the replica is not ready at once, serves on for `drain_seconds` while every answer
says "Connection: close", then finishes what was begun. SIGINT and SIGQUIT stop at once.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from webhook.admission.serving.app import create_app
from webhook.admission.serving.plain_http import PlainHttpServer
from webhook.admission.serving.probes import ProbeServer, probe_pages
from webhook.admission.serving.server_settings import Build, ServerParts, ServerSettings
from webhook.admission.serving.sockets import StartError, address_of, listen
from webhook.admission.serving.worker import AdmissionWorker
from webhook.atomic_file import write_file
from webhook.jsonfields.encoding import encode_json

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
"""What was asked for cannot be served: a port in use, files that do not fit together."""
EXIT_FAULT: Final = 5
"""The worker could not be built, or the server itself failed."""

HEARTBEAT_SECONDS: Final = 30
"""gunicorn replaces a worker whose event loop stands still for that long."""
STALLED_SECONDS: Final = 15.0
"""The event loop turns twice a second; `/livez` fails when it has not for that long."""
STOP_MARGIN_SECONDS: Final = 3.0

log = logging.getLogger(__name__)


def serve(build: Build, settings: ServerSettings) -> int:
    """Run the server until a signal stops it.

    Args:
        build: Makes what is served; called inside the worker process, once per worker, with the
            URL of every listener by name.
        settings: Where and how to listen.

    Returns:
        The exit code: EXIT_OK after a stop, EXIT_USAGE or EXIT_FAULT with the reason in the log.
    """
    master = os.getpid()
    try:
        _check(settings)
        sockets = _open_sockets(settings)
    except StartError as err:
        log.error("not started", extra={"detail": str(err)})  # noqa: TRY400 - no traceback helps
        return EXIT_USAGE
    code = _run(_Application(build, settings, sockets))
    if os.getpid() != master:
        # this is the worker, which must not go on with what its parent does after serving
        logging.shutdown()
        os._exit(code)
    return EXIT_OK if code == 0 else EXIT_FAULT


def _run(application: _Application) -> int:
    try:
        application.run()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def _check(settings: ServerSettings) -> None:
    if settings.threads < 1 or settings.max_connections <= settings.threads:
        raise StartError("threads must be at least 1 and fewer than the connections")
    if settings.announce and not settings.announce.parent.is_dir():
        raise StartError(f"{settings.announce}: there is no directory to announce in")
    problems = settings.tls.file_problems() if settings.tls else ()
    if problems:
        raise StartError("; ".join(problems))


def _open_sockets(settings: ServerSettings) -> dict[str, socket.socket]:
    """Open every listener by name; `webhook` and `ops` are the names of the two that always are.

    Raises:
        StartError: One of them cannot be opened; none stays open.
    """
    wanted = {**settings.extra_listeners, "webhook": settings.webhook, "ops": settings.ops}
    with ExitStack() as opened:
        sockets = {
            name: opened.enter_context(listen(name, address)) for name, address in wanted.items()
        }
        opened.pop_all()
    return sockets


class _Application(BaseApplication):  # type: ignore[misc]
    """Application of gunicorn; carries what the worker needs across the fork."""

    def __init__(
        self, build: Build, settings: ServerSettings, sockets: Mapping[str, socket.socket]
    ) -> None:
        self.build = build
        self.settings = settings
        self.places = {
            name: address_of(sock, _scheme(name, settings)) for name, sock in sockets.items()
        }
        self.sockets = dict(sockets)
        # gunicorn takes the descriptor over, and closes it
        self.descriptor = self.sockets.pop("webhook").detach()
        self.parts: ServerParts | None = None
        self.running: list[ProbeServer | PlainHttpServer] = []
        super().__init__()

    def load_config(self) -> None:
        """Set every gunicorn setting that is not its default."""
        settings = self.settings
        options: dict[str, object] = {
            "bind": f"fd://{self.descriptor}",
            "worker_class": AdmissionWorker,
            "logger_class": _GunicornLogger,
            "workers": 1,
            "threads": settings.threads,
            "worker_connections": settings.max_connections,
            "keepalive": max(1, int(settings.keepalive_seconds)),
            "timeout": HEARTBEAT_SECONDS,
            "graceful_timeout": int(
                settings.drain_seconds + settings.graceful_seconds + STOP_MARGIN_SECONDS
            ),
            "worker_tmp_dir": _memory_directory(),
            "control_socket_disable": True,
            "limit_request_line": 1024,
            "limit_request_fields": 50,
            "http_protocols": "h1",
            "proc_name": "deferred-quota",
            "post_worker_init": self._started,
            "worker_exit": self._stopped,
        }
        if settings.tls:
            options |= {
                "certfile": str(settings.tls.certificate),
                "keyfile": str(settings.tls.key),
                "ssl_context": _context_hook(settings.tls.context),
            }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> WSGIApplication:
        """Make the application; called in the worker."""
        with _or_no_worker():
            return self._load()

    def _load(self) -> WSGIApplication:
        parts = self.parts = self.build(
            {name: str(each["url"]) for name, each in self.places.items()}
        )
        missing = sorted(self.settings.extra_listeners.keys() ^ parts.extra_wsgi.keys())
        if missing:
            raise StartError(f"listeners and applications differ: {', '.join(missing)}")
        if self.settings.tls:
            self.settings.tls.observe(parts.metrics)
        return create_app(
            parts.review_handler,
            metrics=parts.metrics,
            body_bytes=self.settings.body_bytes,
            serves_extender=self.settings.serves_extender,
            log_allowed_every=parts.log_allowed_every,
        )

    def _started(self, worker: AdmissionWorker) -> None:
        if self.parts is not None:
            with _or_no_worker():
                self._start(worker, self.parts)

    def _start(self, worker: AdmissionWorker, parts: ServerParts) -> None:
        parts.start()
        pages = probe_pages(
            problems_of_life=lambda: _problems_of_life(worker),
            problems_of_readiness=lambda: self._not_ready(worker, parts),
            notes=lambda: [*self._notes(), *parts.warnings()],
            metrics=parts.metrics.exposition,
        )
        self.running.append(ProbeServer(self.sockets["ops"], pages))
        for name, application in parts.extra_wsgi.items():
            self.running.append(PlainHttpServer(name, self.sockets[name], application))
        for server in self.running:
            server.start()
        self._announce()

    def _not_ready(self, worker: AdmissionWorker, parts: ServerParts) -> list[str]:
        reasons = list(parts.readiness())
        if worker.stopping:
            reasons.append("stopping")
        if self.settings.tls:
            reasons += self.settings.tls.serving_problems()
        return reasons

    def _notes(self) -> list[str]:
        """Return what people should see to although this replica is ready."""
        refused = self.settings.tls.refusals() if self.settings.tls else ()
        return [f"new certificate refused, the former one is served: {each}" for each in refused]

    def _announce(self) -> None:
        places = dict(self.places)
        announcement = {
            "pid": os.getppid(),
            "webhook": places.pop("webhook"),
            "ops": places.pop("ops"),
            "listeners": places,
        }
        log.info("listening", extra=announcement)
        if self.settings.announce:
            write_file(self.settings.announce, encode_json(announcement))

    def _stopped(self, _arbiter: object, _worker: object) -> None:
        """Stop what runs beside the worker; gunicorn also calls this in the parent."""
        for server in self.running:
            server.stop()
        self.running.clear()
        if self.parts is not None:
            self.parts.stop()
            self.parts = None


class _GunicornLogger(Logger):  # type: ignore[misc]
    """Sends what gunicorn says into the project's log, and writes no access log."""

    def setup(self, cfg: Any) -> None:
        """Keep the handlers of the root logger, and nothing else."""
        self.cfg = cfg
        self._access_log_enabled = False
        for logger in (self.error_log, self.access_log):
            logger.handlers.clear()
            logger.propagate = True


@contextmanager
def _or_no_worker() -> Iterator[None]:
    """End the worker in a way that ends the server, after saying why in the log."""
    try:
        yield
    except Exception:
        log.exception("the worker cannot be built")
        sys.exit(Arbiter.WORKER_BOOT_ERROR)


def _context_hook(
    context: Callable[[], ssl.SSLContext],
) -> Callable[[object, object], ssl.SSLContext]:
    def hook(_config: object, _default: object) -> ssl.SSLContext:
        return context()

    return hook


def _scheme(name: str, settings: ServerSettings) -> str:
    return "https" if name == "webhook" and settings.tls else "http"


def _problems_of_life(worker: AdmissionWorker) -> Sequence[str]:
    seconds = time.monotonic() - worker.last_turn
    if seconds > STALLED_SECONDS:
        return [f"the event loop has stood still for {seconds:.0f} s"]
    limit, threads = worker.settings.stuck_seconds, worker.settings.threads
    if worker.loop.busy_longer_than(limit) >= threads:
        return [f"all {threads} threads have been busy for more than {limit:g} s"]
    return []


def _memory_directory() -> str | None:
    """Return a directory in memory for the heartbeat: a slow disk looks like a dead worker."""
    shm = Path("/dev/shm")  # noqa: S108
    return str(shm) if shm.is_dir() and os.access(shm, os.W_OK) else None
