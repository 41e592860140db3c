"""Report of `enable`: tables and sentences for people, plain values for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from webhook.cli.cluster_context import finding_entry, finding_lines
from webhook.cli.exit_codes import printable
from webhook.cli.printing.output import print_table
from webhook.operations.enable_plan import Plan, QuotaPlan
from webhook.operations.findings import Finding, Severity
from webhook.state.well_known import DEFERRED_MODE


@dataclass(slots=True)
class Outcome:
    """Outcome of one namespace."""

    plan: Plan
    is_refused: bool = False
    """Something stands in the way."""
    was_set: bool = False
    is_set: bool = False
    missing: tuple[str, ...] = field(default=())
    """What it still waits for."""
    error: str = ""
    """Why that is not known, or what the API server refused; empty if it did not."""


def print_text(
    installed: Sequence[Finding], outcomes: Sequence[Outcome], *, dry_run: bool, mode: str
) -> None:
    """Print what became of namespaces, and what speaks against it."""
    for finding in installed:
        if finding.severity is not Severity.INFO:
            click.echo("\n".join(finding_lines(finding)), err=True)
    for outcome in outcomes:
        plan = outcome.plan
        for finding in plan.findings:
            click.echo("\n".join(finding_lines(finding)), err=True)
        rows = [row for quota in plan.quotas for row in _rows(quota)]
        if rows:
            print_table(_HEAD, [(plan.namespace, *row) for row in rows], right=(3, 4, 5, 6))
        verdict = _verdict if mode == DEFERRED_MODE else _shadow_verdict
        click.echo(printable(f"{plan.namespace}: {verdict(outcome, dry_run=dry_run)}"))
        for missing in outcome.missing:
            click.echo(printable(f"{plan.namespace}: {missing}"), err=True)


_HEAD = ("NAMESPACE", "QUOTA", "RESOURCE", "HARD", "USED NOW", "AT THE BIND", "FREED")


def _rows(quota: QuotaPlan) -> list[tuple[str, ...]]:
    rows = [
        (quota.name, key.key, *map(str, (key.hard, key.used_now, key.used_then, key.freed)))
        for key in quota.deferred
    ]
    return rows + [(quota.name, key, "stays", "", "", "") for key in quota.stays]


def _verdict(outcome: Outcome, *, dry_run: bool) -> str:
    if outcome.error:
        return _unfinished(outcome, "opted in", dry_run=dry_run)
    if outcome.is_refused and outcome.was_set:
        return (
            "opted in (the label is set), but not in force: fix the errors above and run this"
            f" again, or run: deferred-quota disable {outcome.plan.namespace}"
        )
    if outcome.is_refused:
        return "not opted in, because of the errors above"
    if dry_run:
        return "is opted in already" if outcome.plan.is_opted_in else "would be opted in"
    if outcome.missing:
        return "opted in, but not in force yet; run this again to check"
    return "opted in" if outcome.is_set else "was opted in already, and is in force"


def _shadow_verdict(outcome: Outcome, *, dry_run: bool) -> str:
    if outcome.error:
        return _unfinished(outcome, "put into shadow mode", dry_run=dry_run)
    if outcome.is_refused and outcome.was_set:
        return (
            "in shadow mode (the label is set), but not watched: fix the errors above and run this"
            " again"
        )
    if outcome.is_refused:
        return "not watched, because of the errors above"
    if dry_run:
        return "is in shadow mode already" if outcome.was_set else "would be watched"
    if outcome.missing:
        return "in shadow mode, but not watched yet; run this again to check"
    return "in shadow mode" if outcome.is_set else "was in shadow mode already, and is watched"


def _unfinished(outcome: Outcome, what: str, *, dry_run: bool) -> str:
    if dry_run:
        return f"cannot be {what}: {outcome.error}"
    if outcome.is_set or outcome.was_set:
        return f"{what}, but cannot check whether it is in force: {outcome.error}"
    return f"not {what}: {outcome.error}"


def report_of(
    installed: Sequence[Finding], outcomes: Sequence[Outcome], *, dry_run: bool, mode: str
) -> dict[str, object]:
    """Put all of it into plain values."""
    return {
        "schemaVersion": 1,
        "dryRun": dry_run,
        "mode": mode,
        "installation": [finding_entry(one) for one in installed],
        "namespaces": [_entry(outcome) for outcome in outcomes],
    }


def _entry(outcome: Outcome) -> dict[str, object]:
    plan = outcome.plan
    return {
        "namespace": plan.namespace,
        "wasOptedIn": plan.is_opted_in,
        "wasWatched": plan.is_shadow,
        "refused": outcome.is_refused,
        "labelSet": outcome.is_set,
        "missing": list(outcome.missing),
        "error": outcome.error,
        "quotas": [
            {
                "name": quota.name,
                "excluded": quota.is_excluded,
                "stays": list(quota.stays),
                "deferred": {
                    key.key: {
                        "hard": str(key.hard),
                        "usedNow": str(key.used_now),
                        "usedAtBind": str(key.used_then),
                        "freed": str(key.freed),
                    }
                    for key in quota.deferred
                },
            }
            for quota in plan.quotas
        ],
        "findings": [finding_entry(one) for one in plan.findings],
    }
