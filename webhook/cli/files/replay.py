"""`deferred-quota replay`: what a cluster recorded, under each way of charging quota."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import click

from webhook.cli.cluster_options import snapshot_reader
from webhook.cli.exit_codes import InputError, printable
from webhook.cli.files.configuration import configuration_of
from webhook.cli.files.replayed_reviews import is_review, replay_reviews
from webhook.cli.printing.output import print_json, print_table
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import PODS, ClusterApi
from webhook.operations.deployments import system_namespace_of
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.operations.replay.audit_log import AuditLog, AuditLogError, read_audit_log
from webhook.operations.replay.history import History, history_of
from webhook.operations.replay.outcomes import Outcome, Workload, outcomes
from webhook.operations.replay.scenario import ReplayError, replay_scenario
from webhook.operations.simulate.figures import duration_text
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.simulation.values import Mode

SCHEMA_VERSION: Final = 1
_GZIP: Final = b"\x1f\x8b"
_HEAD: Final = ("WORKLOAD", "PODS", "", "STARTED", "REFUSED", "WAIT P50", "WAIT P99")


def run(
    files: tuple[Path, ...],
    snapshots: tuple[Path, ...],
    modes: tuple[str, ...],
    config: Path | None,
    output: str,
) -> None:
    """Replay audit logs, or reviews."""
    if _has_reviews(files[0]):
        _run_reviews(files, snapshots, config, output)
        return
    log = _read(files)
    wanted = [mode for mode in Mode if not modes or mode in modes]
    with snapshot_reader(snapshots) as api:
        try:
            history = history_of(log.requests, api.list(PODS).items)
        except InvalidFieldError as err:
            raise InputError(f"the log cannot be replayed: {err}") from err
        workloads = _outcomes(api, history, wanted, config)
    notes = tuple(_notes(log, history))
    if output == "json":
        print_json(_entry(history, workloads, notes))
        return
    for note in notes:
        click.echo(f"note: {printable(note)}", err=True)
    click.echo(_span(history))
    print_table(_HEAD, list(_rows(workloads)), right=(1, 3, 4, 5, 6))


def _has_reviews(file: Path) -> bool:
    """Return whether the first line of a file is an AdmissionReview."""
    try:
        with file.open("rb") as opened:
            return is_review(next((line for line in _lines(opened) if line.strip()), b""))
    except (EOFError, zlib.error, OSError):
        return False  # told when it is read


def _run_reviews(
    files: Sequence[Path], snapshots: tuple[Path, ...], config: Path | None, output: str
) -> None:
    with ExitStack() as stack:
        opened = [(file, _lines(stack.enter_context(file.open("rb")))) for file in files]
        sums = replay_reviews(opened, snapshots, config)
    entries = [
        {
            "workload": one.workload,
            "request": one.request,
            "decision": one.decision,
            "count": count,
            "example": sums.examples.get(one, ""),
        }
        for one, count in sorted(sums.counts.items())
    ]
    if output == "json":
        print_json({"schemaVersion": SCHEMA_VERSION, "reviews": entries})
    else:
        head = ("WORKLOAD", "REQUEST", "DECISION", "COUNT", "FIRST DENIAL")
        print_table(head, [tuple(map(str, one.values())) for one in entries], right=(3,))
    if sums.problems:
        raise InputError(sums.problems)


def _read(files: Sequence[Path]) -> AuditLog:
    log, problems = AuditLog(), []
    for file in files:
        try:
            with file.open("rb") as opened:
                read_audit_log(str(file), _lines(opened), log)
        except AuditLogError as err:
            problems.append(str(err))
        except (EOFError, zlib.error, gzip.BadGzipFile) as err:
            problems.append(f"{file}: invalid gzip file: {err}")
        except OSError as err:
            problems.append(f"{file}: {err.strerror}")
    if problems:
        raise InputError(problems)
    if not log.requests:
        more = f", {log.without_pod} of them creations without the pod" if log.without_pod else ""
        raise InputError(
            f"nothing to replay: no request about a pod in {log.lines} lines{more}; the log needs"
            " the level RequestResponse for pods"
        )
    return log


def _lines(opened: IO[bytes]) -> Iterator[bytes]:
    is_packed = opened.read(2) == _GZIP
    opened.seek(0)
    if not is_packed:
        yield from opened
        return
    with gzip.GzipFile(fileobj=opened) as unpacked:
        yield from unpacked


def _outcomes(
    api: ClusterApi, history: History, modes: Sequence[Mode], config: Path | None
) -> list[Workload]:
    place = system_namespace_of(api)
    session = Session(api, ExplainOptions(is_offline=True))
    try:
        scenario = replay_scenario(session, history, configuration_of(api, config, place))
        found = outcomes(history, scenario, modes)
    except (InvalidFieldError, ScopeError, ReplayError) as err:
        raise InputError(f"the log cannot be replayed: {err}") from err
    for one in session.unknown:
        click.echo(f"note: {printable(one)}", err=True)
    return found


def _notes(log: AuditLog, history: History) -> Iterator[str]:
    if log.without_pod:
        yield f"creations without the pod: {log.without_pod}; record the level RequestResponse"
    if log.collections:
        yield f"deletions of many pods at once: {log.collections}; which ones is not in the log"
    if history.unknown:
        yield f"ended pods that neither log nor snapshot has: {history.unknown}; they are left out"
    there = sum(one.was_there for one in history.pods)
    if there:
        yield f"pods from before the log began: {there}; they use quota and nodes from the start"


def _span(history: History) -> str:
    first = datetime.fromtimestamp(history.first // 1000, UTC)
    lasts = duration_text(history.last - history.first)
    return f"{lasts} from {first:%Y-%m-%dT%H:%M:%SZ} on"


def _rows(workloads: Sequence[Workload]) -> Iterator[tuple[str, ...]]:
    for one in workloads:
        ways = [
            ("recorded", one.recorded),
            *((str(way), how) for way, how in one.simulated.items()),
        ]
        for index, (way, how) in enumerate(ways):
            name, pods = ("", "") if index else (one.name, str(one.pods))
            yield (
                name,
                pods,
                way,
                str(how.started),
                str(how.refused),
                _wait(how, 50),
                _wait(how, 99),
            )


def _wait(how: Outcome, percent: int) -> str:
    wait = how.wait_at(percent)
    return "-" if wait is None else duration_text(wait)


def _entry(
    history: History, workloads: Sequence[Workload], notes: Sequence[str]
) -> dict[str, object]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "first": history.first,
        "last": history.last,
        "notes": list(notes),
        "workloads": [
            {
                "workload": one.name,
                "pods": one.pods,
                "recorded": _figures(one.recorded),
                **{str(way): _figures(how) for way, how in one.simulated.items()},
            }
            for one in workloads
        ],
    }


def _figures(how: Outcome) -> dict[str, object]:
    return {
        "started": how.started,
        "refused": how.refused,
        "waitP50": how.wait_at(50),
        "waitP99": how.wait_at(99),
    }
