"""Output of `deferred-quota emergency` before and after it works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from webhook.cli.exit_codes import printable
from webhook.cli.printing.output import over_entries, over_text, print_structured
from webhook.install.emergency.closing import Closed, Counted
from webhook.install.emergency.opening import Native, Opened, OpeningPlan


def announce_opening(plan: OpeningPlan, *, releases: bool, dry_run: bool) -> None:
    """Print to standard error what is about to be done."""
    _echo(_opening(plan, releases=releases, dry_run=dry_run))


def announce_closing(plan: OpeningPlan, namespaces: Sequence[str], *, dry_run: bool) -> None:
    """Print to standard error what is about to be done."""
    _echo(_closing(plan, namespaces, dry_run=dry_run))


def print_opened(done: Opened, *, dry_run: bool, output: str) -> None:
    """Print what was done, or would be."""
    if output != "text":
        print_structured(
            {
                "schemaVersion": 1,
                "dryRun": dry_run,
                "since": done.since,
                "changed": done.writes,
                "namespaces": [_entry(one) for one in done.namespaces],
                "problems": list(done.problems),
            },
            output,
        )
        return
    for line in _opened(done, dry_run=dry_run):
        click.echo(printable(line))


def print_closed(
    done: Closed, counted: Sequence[Counted], *, was_open: bool, is_forced: bool, output: str
) -> None:
    """Print what was done, and what is used above hard."""
    if output != "text":
        entries = [
            {
                "namespace": one.namespace,
                "missing": list(one.missing),
                "overQuota": over_entries(one.over),
            }
            for one in counted
        ]
        report = {
            "schemaVersion": 1,
            "changed": done.writes,
            "recounted": done.recounted,
            "namespaces": entries,
            "problems": list(done.problems),
        }
        print_structured(report, output)
        return
    for line in _closed(done, counted, was_open=was_open, is_forced=is_forced):
        click.echo(printable(line))


def _opening(plan: OpeningPlan, *, releases: bool, dry_run: bool) -> Iterator[str]:
    state, would = plan.state, "would " if dry_run else ""
    if state.is_open:
        yield f"the emergency is open{_since(state.since)}; looking whether quotas are native"
    elif state.is_begun:
        yield f"the emergency was opened or closed in part{_since(state.since)}; opening it"
    if state.asking:
        yield f"{would}stop asking, and hiding: {_names(state.asking)}"
    names = ", ".join(plan.namespaces) or "none"
    yield f"{would}complete the status of all quotas in the opted-in namespaces: {names}"
    if releases:
        yield f"{would}take the scheduling gate off all pods there: they start, whatever quotas say"
    yield "quotas of several namespaces are not enforced while the emergency is open"


def _closing(plan: OpeningPlan, namespaces: Sequence[str], *, dry_run: bool) -> Iterator[str]:
    state, would = plan.state, "would " if dry_run else ""
    if not state.is_begun:
        yield "the emergency is not open"
        return
    yield f"the emergency is open{_since(state.since)}"
    yield f"{would}delete, and count anew, the ledgers of: {', '.join(namespaces) or 'none'}"
    yield f"{would}ask again, and hide: {_names(state.opened) or 'all is asked already'}"
    yield "nothing is bound there for about a minute, until all is counted"


def _opened(done: Opened, *, dry_run: bool) -> Iterator[str]:
    for one in done.namespaces:
        yield f"{one.namespace}: {_native(one, dry_run=dry_run)}"
        for over in one.over:
            yield f"  over quota: {over_text(over)}; pods that are there stay, new ones are refused"
        if one.waiting:
            yield (
                f"  pods that keep our scheduling gate: {one.waiting}; they count in the quotas,"
                " and only a controller releases them, or --release-gates"
            )
        if one.released:
            yield f"  scheduling gates {'would be ' if dry_run else ''}removed: {one.released}"
        for problem in one.problems:
            yield f"  not done: {problem}"
    for problem in done.problems:
        yield f"not done: {problem}"
    is_left = done.problems or any(one.problems for one in done.namespaces)
    if dry_run:
        yield "dry run: nothing was changed"
    elif is_left:
        yield "not finished: run it again"
    else:
        since = _since(done.since)
        yield f"the emergency is open{since}; end it with: deferred-quota emergency close"


def _native(one: Native, *, dry_run: bool) -> str:
    if one.problems and not dry_run:
        return "its quotas are not native yet"
    if not one.restored:
        return "its quotas are native"
    done = "would be" if dry_run else "was"
    return f"its quotas are native; the status {done} completed of {', '.join(one.restored)}"


def _closed(
    done: Closed, counted: Sequence[Counted], *, was_open: bool, is_forced: bool
) -> Iterator[str]:
    # whether the webhook is reached is looked at only where there is something to close
    complete = "counted, and in force" if was_open else "counted, and its quotas masked"
    for one in counted:
        yield f"{one.namespace}: {'not in force yet' if one.missing else complete}"
        for over in one.over:
            yield f"  over quota: {over_text(over)}; nothing more is bound until there is room"
        for missing in one.missing:
            yield f"  not yet: {missing}"
    for problem in done.problems:
        yield f"not done: {problem}"
    if done.problems:
        yield "not finished: run it again"
    elif not was_open:
        yield (
            "the emergency was not open, and nothing was changed; whether binds are guarded:"
            " deferred-quota doctor"
        )
    elif is_forced:
        yield (
            "the guards are asked again; nothing is bound until a controller leads, has counted,"
            " and the webhook answers: deferred-quota doctor"
        )
    elif any(one.missing for one in counted):
        yield "closed; what is missing comes by itself while a controller leads"
    else:
        yield "the emergency is closed"


def _entry(one: Native) -> dict[str, object]:
    return {
        "namespace": one.namespace,
        "quotasCompleted": list(one.restored),
        "overQuota": over_entries(one.over),
        "gatesKept": one.waiting,
        "gatesRemoved": one.released,
        "problems": list(one.problems),
    }


def _names(places: Sequence[str]) -> str:
    """Return names of entries and bindings, each once: two registrations have an entry of one."""
    return ", ".join(dict.fromkeys(places))


def _since(since: str) -> str:
    return f" since {since}" if since else ""


def _echo(lines: Iterator[str]) -> None:
    for line in lines:
        click.echo(printable(line), err=True)
