"""Output of `deferred-quota job resize`, also when it is interrupted or fails."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from webhook.cli.exit_codes import CommandError, ExitCode, printable
from webhook.cli.printing.output import print_structured
from webhook.kube.api import ApiError, RequestTimeoutError, UnavailableError
from webhook.operations.jobs.planning import Plan, ResizeRefusedError
from webhook.operations.jobs.resizing import Resized, ResizeFailedError
from webhook.quota.jobs.policy import REPLACED_BESIDE
from webhook.quota.jobs.resize_plan import STARTS_BESIDE, AmountChange, ContainerChange


class Warnings:
    """Shows what a cluster warns of, each once, while the command goes on.

    Attributes:
        texts: What was shown.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Show a warning, unless that has been done."""
        with self._lock:
            if text in self.texts:
                return
            self.texts.append(text)
        click.echo(printable(f"Warning: {text}"), err=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as the keyboard does, so that it can be undone."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears of signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ending_of(err: ResizeFailedError) -> ExitCode:
    """Print what failed and what was undone; return how the command ends.

    Raises:
        Abort: It was interrupted.
        BaseException: What failed is a fault of this program.
    """
    CommandError(err.problem).show()
    for words in err.undone.done:
        click.echo(printable(f"undone: {words}"), err=True)
    for words in err.undone.left:
        click.echo(printable(f"not undone: {words}"), err=True)
    match err.__cause__:
        case KeyboardInterrupt():
            raise click.Abort from err
        case UnavailableError() | RequestTimeoutError():
            return ExitCode.UNREACHABLE
        case ApiError() | ResizeRefusedError() | None:
            return ExitCode.FINDINGS
        case cause:
            raise cause


def print_plan(plan: Plan, checked: str, output: str, heard: Sequence[str] = ()) -> None:
    """Print what a resize would do.

    Args:
        plan: What it would do.
        checked: What the API server had to say to it.
        output: The format.
        heard: What the cluster warned of; shown already, but for programs.
    """
    if output != "text":
        entry = _entry(plan, heard, dry_run=True, suspended=plan.suspends, resumed=plan.resumes)
        unasked = list(plan.unasked)
        print_structured(
            {**entry, "checked": checked, "notChecked": unasked, "problems": []}, output
        )
        return
    _print_cautions(plan, heard)
    steps = [f"checked: {checked}"] if checked else []
    steps += [f"not checked: {words}" for words in plan.unasked]
    if plan.suspends:
        pods = _pods(plan.facts.state.active)
        steps.insert(0, f"is suspended first: {pods}, and what is not saved is lost")
        last = "is resumed in the same write" if plan.resumes else "stays suspended"
        idle = "status.active and status.terminating are" if plan.drains else "status.active is"
        steps.insert(1, f"when {idle} 0 the resources change, and it {last}")
    _print_text(plan, "would be resized" if plan.changes else _NOTHING, steps)


def print_resized(done: Resized, output: str, heard: Sequence[str] = ()) -> None:
    """Print what a resize did; `heard` is as in `print_plan`."""
    plan = done.plan
    if output != "text":
        entry = _entry(plan, heard, dry_run=False, suspended=done.suspended, resumed=done.resumed)
        print_structured({**entry, "problems": list(done.problems)}, output)
        return
    _print_cautions(plan, heard)
    steps = [f"problem: {each}" for each in done.problems]
    if done.resumed:
        steps.insert(0, "it was suspended, and is resumed: new pods have the new resources")
    elif plan.changes:
        steps.insert(0, "it is suspended: pods have the new resources when it is resumed")
    _print_text(plan, "resized" if plan.changes else _NOTHING, steps)


_NOTHING = "has these resources already, nothing to do"


def _print_text(plan: Plan, head: str, steps: list[str]) -> None:
    lines = [f"{plan.facts.title}: {head}"]
    lines += [f"  {_change(each)}" for each in plan.changes]
    lines += [f"  {step}" for step in steps]
    click.echo("\n".join(map(printable, lines)))


def _print_cautions(plan: Plan, heard: Sequence[str]) -> None:
    for words in _cautions(plan, heard):
        click.echo(printable(f"Warning: {words}"), err=True)


def _cautions(plan: Plan, heard: Sequence[str]) -> tuple[str, ...]:
    """Return the cautions of a change, but for the one that the webhook has given already."""
    is_told = any(REPLACED_BESIDE in text for text in heard)
    return tuple(
        words
        for words in (plan.cautions if plan.changes else ())
        if not (is_told and words.endswith(STARTS_BESIDE))
    )


def _change(change: ContainerChange) -> str:
    return f"{change.field} ({change.container}): {', '.join(map(_amount, change.amounts))}"


def _amount(change: AmountChange) -> str:
    if change.old is None:
        return f"{change.name} set to {change.new}"
    return f"{change.name} from {change.old} to {change.new}"


def _pods(count: int) -> str:
    return "1 active pod ends" if count == 1 else f"{count or 'no'} active pods end"


def _entry(
    plan: Plan, heard: Sequence[str], *, dry_run: bool, suspended: bool, resumed: bool
) -> dict[str, object]:
    return {
        "schemaVersion": 1,
        "dryRun": dry_run,
        "namespace": plan.facts.namespace,
        "name": plan.facts.name,
        "changes": [
            {
                "container": change.container,
                "field": change.field,
                "amounts": {
                    each.name: {"old": each.old and str(each.old), "new": str(each.new)}
                    for each in change.amounts
                },
            }
            for change in plan.changes
        ],
        "wasSuspended": plan.facts.state.suspended,
        "suspended": suspended,
        "resumed": resumed,
        "warnings": list(dict.fromkeys((*_cautions(plan, heard), *heard))),
    }
