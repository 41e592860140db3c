"""`deferred-quota shadow`: what opting namespaces in would change, as it was seen there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from webhook.cli.cluster_options import cluster_of, live_cluster
from webhook.cli.exit_codes import ExitCode, printable
from webhook.cli.printing.output import print_structured, print_table
from webhook.jsonfields.fields import InvalidFieldError, timestamp
from webhook.kube.api import ClusterApi
from webhook.operations.shadow_mode import Watched, all_watched, begin_anew
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.shadow.record import (
    ATTEMPTS,
    BOUND,
    CREATED,
    CREATION_COUNTS,
    GROWN,
    NEWLY_REFUSED,
    OVER,
    POD_COUNTS,
    REFUSED,
    STORED,
    UNEXPLAINED,
    Fate,
    QuotaUse,
    ShadowRecord,
    UsageSpan,
)
from webhook.state.well_known import DEFERRED_MODE

_HEAD = (
    "QUOTA", "RESOURCE", "HARD",
    "CHARGED", "AVERAGE", "PEAK",
    "ASSIGNED", "AVERAGE", "PEAK",
    "FULL",
)  # fmt: skip
_NUMBERS = (2, 3, 4, 5, 6, 7, 8, 9)
_MOST_NAMED = 5
_ENOUGH_MILLISECONDS: Final = 24 * 3600 * 1000
"""For how long to watch before a conclusion: a day has its night, and what runs by a timetable."""
_SECOND_MILLISECONDS: Final = 1000
_LAG_MATTERS_MILLISECONDS: Final = 60 * _SECOND_MILLISECONDS
"""Up to when the report says that creations come late: webhooks wait two seconds for what becomes
of one, and add what they found every ten."""
_FATES = {
    Fate.RUNS: "would be admitted, and quota would be free for them at once",
    Fate.WAITS: "would be admitted, and wait for quota",
    Fate.NEVER_FITS: "would be admitted, and wait forever: larger than a quota",
    Fate.STILL_REFUSED: "would be denied, too",
    Fate.UNJUDGED: "unknown: usage was not known",
}
_OVER = {
    CREATED: "those created would have waited for quota",
    BOUND: "those bound were above quota: they would have waited, or been denied",
    GROWN: "those that grew were above quota: they would have been denied",
}


def run_report(
    namespaces: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    output: str,
) -> ExitCode:
    """Show what was found: by default of all namespaces that are or were watched."""
    with cluster_of(snapshots, kubeconfig, context) as api:
        return report_on(api, namespaces, output=output)


def report_on(api: ClusterApi, namespaces: tuple[str, ...], *, output: str) -> ExitCode:
    """Print the report of a cluster."""
    found = all_watched(api, namespaces)
    if output == "text":
        _print_text(found)
    else:
        entries = [_entry_of(one) for one in found]
        print_structured({"schemaVersion": 1, "namespaces": entries}, output)
    is_missing = bool(namespaces) and any(one.record is None for one in found)
    return ExitCode.FINDINGS if is_missing else ExitCode.OK


def run_reset(
    namespaces: tuple[str, ...], kubeconfig: Path | None, context: str | None
) -> ExitCode:
    """Take the records away; of namespaces in shadow mode new ones begin within a minute."""
    with live_cluster(kubeconfig, context) as api:
        return reset_on(api, namespaces)


def reset_on(api: ClusterApi, namespaces: tuple[str, ...]) -> ExitCode:
    """Take records of a cluster away, and say so."""
    code = ExitCode.OK
    for name in dict.fromkeys(namespaces):
        found = begin_anew(api, name)
        if found.record is None:
            code = ExitCode.FINDINGS
        click.echo(printable(f"{name}: {found.problem or 'record deleted'}"))
    return code


def _print_text(found: Sequence[Watched]) -> None:
    """Print what was found in namespaces, for people."""
    if not found:
        click.echo(
            "no namespace is or was in shadow mode: deferred-quota enable --shadow NAMESPACE"
        )
    for index, one in enumerate(found):
        if index:
            click.echo()
        _print_one(one)


def _print_one(one: Watched) -> None:
    record = one.record
    if record is None:
        click.echo(printable(f"{one.namespace}: {one.problem}"))
        return
    click.echo(click.style(printable(f"{one.namespace}: {_when(one, record)}"), bold=True))
    rows = [
        (name, key, *_row(use, span))
        for name, use in record.quotas.items()
        for key, span in use.resources.items()
    ]
    if rows:
        print_table(_HEAD, rows, right=_NUMBERS)
    for line in (*_creations(record), *_pods(record)):
        click.echo(printable(line))
    for line in advice(record):
        click.echo(printable(f"=> {line}"))


def _when(one: Watched, record: ShadowRecord) -> str:
    state = "in shadow mode" if one.is_watched else "was in shadow mode"
    if one.mode == DEFERRED_MODE:
        state += ", defers now"
    watched = f"watched for {_time(_watched(record))}"
    return f"{state}, since {record.since}, last written {record.until}, {watched}"


def _watched(record: ShadowRecord) -> int:
    """Return for how many milliseconds a namespace was watched.

    While no controller led it was not, which quotas tell; without any, the record itself has to.
    """
    if record.quotas:
        return max(use.milliseconds for use in record.quotas.values())
    try:
        since, until = timestamp(record.since, ""), timestamp(record.until, "")
    except InvalidFieldError:
        return 0
    if since is None or until is None:
        return 0
    return max((until - since) // timedelta(milliseconds=1), 0)


def _is_too_early(record: ShadowRecord) -> bool:
    return _watched(record) < _ENOUGH_MILLISECONDS


def _row(use: QuotaUse, span: UsageSpan) -> tuple[str, ...]:
    time = use.milliseconds
    return (
        str(span.hard),
        str(span.charged),
        _share(span.average_charged(time), span.hard),
        str(span.charged_peak),
        str(span.assigned),
        _share(span.average_assigned(time), span.hard),
        str(span.assigned_peak),
        f"{_percent(span.full_milliseconds, time)}",
    )


def _creations(record: ShadowRecord) -> Iterator[str]:
    refused = record.count(REFUSED)
    yield (
        f"creations of pods: {record.count(ATTEMPTS)}, of which stored {record.count(STORED)},"
        f" denied by quota {refused}, failed for another reason {record.count(UNEXPLAINED)}"
    )
    missing = _unseen(record)
    if missing:
        yield (
            f"  {_several(missing, 'pod')} more came: no webhook has added the creation yet, or"
            " none was there to see it"
        )
    for fate, words in _FATES.items():
        if record.count(fate):
            by = _several(len(_named(record, fate)), "workload")
            yield f"  {record.count(fate)} of the {refused} denied, by {by}: {words}"
    if record.count(NEWLY_REFUSED):
        count = record.count(NEWLY_REFUSED)
        yield f"  {count} of the stored: a rule of the configuration would deny them"
    if record.workloads:
        yield f"  denied workloads: {_workloads(record)}"
    if REFUSED in record.examples:
        yield f"  last denial: {record.examples[REFUSED]}"


def _unseen(record: ShadowRecord) -> int:
    """Return how many of the pods that came the controller saw, and no webhook, as far as is known.

    Those of which a webhook could not find out what became are taken for pods that came.
    """
    return max(0, record.count(CREATED) - record.count(STORED) - record.count(UNEXPLAINED))


def _named(record: ShadowRecord, *fates: Fate) -> set[str]:
    """Return the workloads with pods of these fates; one that tries for ever is one."""
    return {one.name for one in record.workloads if one.fate in fates}


def _workloads(record: ShadowRecord) -> str:
    attempts: dict[str, int] = {}
    for one in record.workloads:  # the latest first
        attempts[one.name] = attempts.get(one.name, 0) + one.attempts
    named = [f"{name} ({_several(number, 'attempt')})" for name, number in attempts.items()]
    rest = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    if record.unlisted:
        rest.append(f"{_several(record.unlisted, 'attempt')} of others")
    return ", ".join((*named[:_MOST_NAMED], *rest))


def _pods(record: ShadowRecord) -> Iterator[str]:
    yield (
        f"pods that were stored: {record.count(CREATED)} created, {record.count(BOUND)} got a"
        f" node, {record.count(GROWN)} grew"
    )
    for event, words in _OVER.items():
        if record.count(OVER[event]):
            yield f"  {record.count(OVER[event])} of {words}"
        if OVER[event] in record.examples:
            yield f"    last: {record.examples[OVER[event]]}"


def advice(record: ShadowRecord) -> Iterator[str]:
    """Return in sentences what opting in would bring, and what to see to before."""
    gained = record.count(Fate.RUNS) + record.count(Fate.WAITS)
    so_far = ""
    if _is_too_early(record):
        so_far = "so far "
        watched = _watched(record)
        late = (
            " (creations are added some 15 s late)" if watched < _LAG_MATTERS_MILLISECONDS else ""
        )
        yield (
            f"too early for a conclusion: watched for {_time(watched)}{late}; look again after at"
            " least a day, which has a night and most scheduled jobs"
        )
    for name, use in record.quotas.items():
        for key, span in use.resources.items():
            if (
                span.full_milliseconds >= _SECOND_MILLISECONDS
                and span.assigned_while_full < span.hard
            ):
                yield (
                    f"quota {name} was full for {_time(span.full_milliseconds)} while"
                    f" {_ratio(span.assigned_while_full, span.hard)} of {key} was really assigned"
                )
    if record.count(Fate.NEVER_FITS):
        yield (
            "some pods are larger than a quota: they are denied now and would wait forever;"
            " make them smaller, or the quota larger"
        )
    if record.count(NEWLY_REFUSED):
        yield "check the rules of the configuration first: they would deny pods that run here today"
    over = sum(record.count(event) for event in OVER.values())
    if over:
        yield (
            f"a quota was exceeded {_several(over, 'time')}: such pods would wait, or be denied;"
            " was a quota lowered, or created after its pods?"
        )
    if gained:
        admitted = _several(len(_named(record, Fate.RUNS, Fate.WAITS)), "workload")
        yield (
            f"{so_far}opting in pays: pods of {admitted} that quota denies"
            f" ({_several(gained, 'attempt')}) would have been admitted, and"
            f" {record.count(Fate.RUNS)} of these attempts found quota free"
        )
    elif not over and not record.count(NEWLY_REFUSED):
        yield f"{so_far}opting in would have changed nothing that was seen here"


def _entry_of(one: Watched) -> dict[str, object]:
    """Put what was found in a namespace into plain values for a program."""
    record = one.record
    entry: dict[str, object] = {
        "namespace": one.namespace,
        "mode": one.mode,
        "problem": one.problem,
    }
    if record is None:
        return entry
    return {
        **entry,
        "since": record.since,
        "until": record.until,
        "watchedSeconds": _watched(record) // 1000,
        "tooEarly": _is_too_early(record),
        "creations": {str(name): record.count(name) for name in CREATION_COUNTS},
        "pods": {name: record.count(name) for name in POD_COUNTS},
        "workloads": [
            {
                "name": each.name,
                "attempts": each.attempts,
                "fate": each.fate.value,
                "first": each.first,
                "last": each.last,
            }
            for each in record.workloads
        ],
        "unlistedAttempts": record.unlisted,
        "quotas": [_quota_entry(name, use) for name, use in record.quotas.items()],
        "examples": dict(record.examples),
        "advice": list(advice(record)),
    }


def _quota_entry(name: str, use: QuotaUse) -> dict[str, object]:
    return {
        "name": name,
        "since": use.since,
        "seconds": use.milliseconds // 1000,
        "resources": {
            key: {
                "hard": str(span.hard),
                "charged": {
                    "now": str(span.charged),
                    "average": str(_rounded(span.average_charged(use.milliseconds))),
                    "peak": str(span.charged_peak),
                },
                "assigned": {
                    "now": str(span.assigned),
                    "average": str(_rounded(span.average_assigned(use.milliseconds))),
                    "peak": str(span.assigned_peak),
                },
                "fullSeconds": span.full_milliseconds // 1000,
                "assignedWhileFull": str(_rounded(span.assigned_while_full)),
            }
            for key, span in use.resources.items()
        },
    }


def _rounded(amount: Quantity) -> Quantity:
    """Leave out digits of no use: to a thousandth, of large amounts to the unit."""
    is_large = abs(amount.nano) >= 1000 * 10**9
    return Quantity.of_units(amount.value, amount.format) if is_large else amount.rounded_to_milli()


def _share(amount: Quantity, hard: Quantity) -> str:
    return f"{_rounded(amount)} {_ratio(amount, hard)}"


def _ratio(amount: Quantity, hard: Quantity) -> str:
    return _percent(amount.nano, hard.nano)


def _percent(part: int, whole: int) -> str:
    return f"{(200 * part + whole) // (2 * whole)} %" if whole > 0 else "-"


def _time(milliseconds: int) -> str:
    """Write a time with its two largest units."""
    seconds = milliseconds // 1000
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // small} {smaller}"
    return f"{seconds // 60} m {seconds % 60} s" if seconds >= 60 else f"{seconds} s"


def _several(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
