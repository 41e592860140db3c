"""`deferred-quota disable`: opt namespaces out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from webhook.cli.cluster_options import live_cluster, progress, retried
from webhook.cli.exit_codes import ExitCode, confirm_on_terminal, printable
from webhook.cli.printing.output import over_entries, over_text, print_structured
from webhook.kube.api import ApiError, ClusterApi, ForbiddenError, UnauthorizedError
from webhook.operations.disable import OptedOut, Released, opt_out, preview, to_be_released
from webhook.operations.namespaces_at_once import NO_ANSWER, Ended, in_each
from webhook.operations.retry import RetryPolicy
from webhook.quota.amounts.resources import render

_NO_ANSWER: Final = (*NO_ANSWER, UnauthorizedError)


def run(
    namespaces: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    seconds: float,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
) -> ExitCode:
    """Opt namespaces out: the API server charges their pods when they are created, as before."""
    wanted = tuple(dict.fromkeys(namespaces))
    patience = RetryPolicy(seconds=0 if dry_run else seconds, report=retried)
    with live_cluster(kubeconfig, context) as api:
        is_rush = announce_released(api, wanted, dry_run=dry_run, patience=patience)
        if is_rush and not (yes or dry_run):
            confirm_on_terminal("Opt out and start these pods?")
        return disable_on(api, wanted, dry_run=dry_run, patience=patience, output=output)


def announce_released(
    api: ClusterApi, namespaces: Sequence[str], *, dry_run: bool, patience: RetryPolicy
) -> bool:
    """Print to standard error which pods will start at once; return whether there may be any.

    Raises:
        ApiError: The cluster does not answer, or does not know the caller.
    """
    is_rush, timer = False, patience.begin()
    for namespace in namespaces:
        try:
            released = timer.retry(partial(to_be_released, api, namespace))
        except _NO_ANSWER:
            raise
        except ApiError as err:
            words = f"{namespace}: cannot list the waiting pods: {err.message}"
        else:
            if not released.pods:
                continue
            words = _rush(released, dry_run=dry_run)
        is_rush = True
        click.echo(f"{click.style('warning:', fg='yellow')} {printable(words)}", err=True)
    return is_rush


def _rush(released: Released, *, dry_run: bool) -> str:
    pods = "1 waiting pod" if released.pods == 1 else f"{released.pods} waiting pods"
    start = "would start" if dry_run else "starts" if released.pods == 1 else "start"
    asked = "".join(
        f"; quota {one.quota}: requested {render(one.requested)}, free {render(one.free)}"
        for one in released.demands
    )
    return f"{released.namespace}: {pods} {start} at once, within quota or not{asked}"


def disable_on(
    api: ClusterApi,
    namespaces: Sequence[str],
    *,
    dry_run: bool,
    output: str,
    patience: RetryPolicy,
) -> ExitCode:
    """Opt namespaces of a cluster out and print what was done."""

    def one(namespace: str, patience: RetryPolicy) -> OptedOut:
        if dry_run:
            return preview(api, namespace)
        return opt_out(api, namespace, report=progress, patience=patience)

    done = in_each(namespaces, one, patience=patience, report=progress, no_answer=_NO_ANSWER)
    outcomes = [_outcome(ended) for ended in done.each]
    _print(outcomes, dry_run=dry_run, output=output)
    done.check_ended()
    if not all(outcome.exists for outcome in outcomes):
        return ExitCode.FINDINGS
    if any(outcome.problems for outcome in outcomes):
        return ExitCode.DRIFT
    return ExitCode.OK


def _outcome(ended: Ended[OptedOut]) -> OptedOut:
    is_refused = isinstance(ended.error, ForbiddenError)
    return ended.value or OptedOut(
        ended.name, is_known=False, is_refused=is_refused, problems=(ended.why,)
    )


def _print(outcomes: Sequence[OptedOut], *, dry_run: bool, output: str) -> None:
    if output == "text":
        for outcome in outcomes:
            click.echo("\n".join(map(printable, _lines(outcome, dry_run=dry_run))))
    else:
        entries = [_entry(outcome) for outcome in outcomes]
        print_structured({"schemaVersion": 1, "dryRun": dry_run, "namespaces": entries}, output)


def _lines(outcome: OptedOut, *, dry_run: bool) -> Iterator[str]:
    if not outcome.exists:
        yield f"{outcome.namespace}: there is no such namespace"
        return
    yield f"{outcome.namespace}: {_head(outcome, dry_run=dry_run)}"
    would = "would be " if dry_run else ""
    if outcome.gates:
        yield f"  scheduling gates {would}removed: {outcome.gates}"
    if outcome.restored:
        yield f"  status of quotas {would}completed: {', '.join(outcome.restored)}"
    for over in outcome.over:
        yield (
            f"  over quota {'then' if dry_run else 'now'}: {over_text(over)};"
            " existing pods stay, new ones are denied"
        )
    if outcome.left:
        names = ", ".join(outcome.left)
        charged = "would no longer be charged" if dry_run else "no longer charged"
        yield f"  {charged} to shared quotas: {names}; other namespaces get its share"
    for problem in outcome.problems:
        yield f"  not done: {problem}"


def _head(outcome: OptedOut, *, dry_run: bool) -> str:
    if outcome.is_refused and not dry_run:
        return "not opted out: a permission is missing; grant it and run this again"
    if outcome.problems and not dry_run:
        return "not opted out completely; run this again"
    if not outcome.is_known:
        return "cannot be read"
    if dry_run:
        return "would be opted out" if outcome.had_label else "is not opted in"
    return "opted out" if outcome.had_label else "was not opted in"


def _entry(outcome: OptedOut) -> dict[str, object]:
    return {
        "namespace": outcome.namespace,
        "exists": outcome.exists,
        "wasOptedIn": outcome.had_label,
        "gatesRemoved": outcome.gates,
        "quotasCompleted": list(outcome.restored),
        "overQuota": over_entries(outcome.over),
        "clusterQuotasLeft": list(outcome.left),
        "problems": list(outcome.problems),
    }
