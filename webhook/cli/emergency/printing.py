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
        yield f"the emergency is open{_since(state.since)}; checking that quotas are native"
    elif state.is_begun:
        yield f"the emergency is only partly open{_since(state.since)}; opening it"
    if state.asking:
        yield f"{would}disable webhooks and mask: {_names(state.asking)}"
    names = ", ".join(plan.namespaces) or "none"
    yield f"{would}complete the status of all quotas in the opted-in namespaces: {names}"
    if releases:
        yield f"{would}remove the scheduling gates of all pods there: they start, even above quota"
    yield "quotas of several namespaces are not enforced while the emergency is open"


def _closing(plan: OpeningPlan, namespaces: Sequence[str], *, dry_run: bool) -> Iterator[str]:
    state, would = plan.state, "would " if dry_run else ""
    if not state.is_begun:
        yield "the emergency is not open"
        return
    yield f"the emergency is open{_since(state.since)}"
    yield f"{would}delete and recount the ledgers of: {', '.join(namespaces) or 'none'}"
    yield f"{would}enable webhooks and mask: {_names(state.opened) or 'all are enabled'}"
    yield "nothing is bound there for about a minute, until all pods are counted"


def _opened(done: Opened, *, dry_run: bool) -> Iterator[str]:
    for one in done.namespaces:
        yield f"{one.namespace}: {_native(one, dry_run=dry_run)}"
        for over in one.over:
            yield f"  over quota: {over_text(over)}; existing pods stay, new ones are denied"
        if one.waiting:
            yield (
                f"  pods that stay gated: {one.waiting}; they count in the quotas; a controller or"
                " --release-gates removes their gates"
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
        yield "not finished: run this again"
    else:
        since = _since(done.since)
        yield f"the emergency is open{since}; end it with: deferred-quota emergency close"


def _native(one: Native, *, dry_run: bool) -> str:
    if one.problems and not dry_run:
        return "its quotas are not native yet"
    if not one.restored:
        return "its quotas are native"
    done = "would be completed" if dry_run else "completed"
    return f"its quotas are native; status {done}: {', '.join(one.restored)}"


def _closed(
    done: Closed, counted: Sequence[Counted], *, was_open: bool, is_forced: bool
) -> Iterator[str]:
    # whether the webhook is reached is looked at only where there is something to close
    complete = "counted, and in force" if was_open else "counted, and its quotas masked"
    for one in counted:
        yield f"{one.namespace}: {'not in force yet' if one.missing else complete}"
        for over in one.over:
            yield f"  over quota: {over_text(over)}; no more pods are bound until usage falls"
        for missing in one.missing:
            yield f"  not yet: {missing}"
    for problem in done.problems:
        yield f"not done: {problem}"
    if done.problems:
        yield "not finished: run this again"
    elif not was_open:
        yield (
            "the emergency was not open, nothing was changed; to check the webhook, run:"
            " deferred-quota doctor"
        )
    elif is_forced:
        yield (
            "the webhooks are enabled; nothing is bound until they answer and a controller has"
            " counted all pods; to check, run: deferred-quota doctor"
        )
    elif any(one.missing for one in counted):
        yield "closed; the controller completes what is missing"
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
