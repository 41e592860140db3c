"""AdmissionReviews from files and standard input, answered one after the other.

One review fills its file; with JSON lines every line that is not blank is one. Each is answered
with one line. A line that is no review is answered with an error that gives its number, so that
answers stay beside their reviews, and the others are answered all the same.
"""

from __future__ import annotations

import contextlib
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

import click

from webhook.admission.deadline import DEFAULT_TIMEOUT_SECONDS, Deadline
from webhook.admission.review import (
    AdmissionRequest,
    AdmissionResponse,
    Allowed,
    MalformedReviewError,
    Phase,
    decode_review,
    encode_review,
)
from webhook.cli.exit_codes import ExitCode, InputError
from webhook.cli.files.configuration import read_configuration
from webhook.cli.files.inputs import STDIN, read_input, stdin
from webhook.cli.files.snapshots import read_cluster, running_engine
from webhook.jsonfields.encoding import encode_json

Decide: TypeAlias = Callable[[AdmissionRequest, Deadline], AdmissionResponse]

PHASES = {"validate": Phase.VALIDATING, "mutate": Phase.MUTATING}
"""Value of `--phase` → phase."""


def run(
    file: str, snapshots: tuple[Path, ...], jsonl: bool, phase: str, config: Path | None
) -> ExitCode:
    """Answer the AdmissionReview in FILE (default: standard input) on a snapshot of a cluster."""
    configuration = read_configuration(config)
    with running_engine(read_cluster(snapshots), configuration) as engine:
        return print_replies(file, jsonl=jsonl, phase=PHASES[phase], decide=engine.decide)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one review, as JSON in one line."""

    text: bytes
    allowed: bool
    """Whether the request may go on; false for what is no review."""
    problem: str = ""
    """Why it is no review; empty if it is one."""


def print_replies(source: str, *, jsonl: bool, phase: Phase, decide: Decide) -> ExitCode:
    """Answer the reviews of a file (`-` is standard input) on standard output.

    Returns:
        OK, or FINDINGS if a request was refused.

    Raises:
        InputError: The file cannot be read, or something in it is no review. What could be
            answered has been; a single review that cannot leaves standard output empty.
    """
    problems: list[str] = []
    refused = False
    for reply in _line_replies(source, phase, decide) if jsonl else _reply(source, phase, decide):
        if reply.problem:
            problems.append(reply.problem)
        refused = refused or not reply.allowed
        click.echo(reply.text)
    if problems:
        raise InputError(problems)
    return ExitCode.FINDINGS if refused else ExitCode.OK


def _reply(source: str, phase: Phase, decide: Decide) -> Iterable[Reply]:
    try:
        return (_answer(read_input(source), phase, decide),)
    except MalformedReviewError as err:
        raise InputError(f"{source}: {err.detail}") from err


def _line_replies(source: str, phase: Phase, decide: Decide) -> Iterator[Reply]:
    with _opened(source) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield _answer(line, phase, decide)
            except MalformedReviewError as err:
                yield _malformed(source, number, err)


def _answer(data: bytes, phase: Phase, decide: Decide) -> Reply:
    request = decode_review(data.removeprefix(BOM_UTF8), phase)
    answer = decide(request, Deadline(time.monotonic() + DEFAULT_TIMEOUT_SECONDS))
    return Reply(encode_review(request, answer), isinstance(answer, Allowed))


def _malformed(source: str, number: int, err: MalformedReviewError) -> Reply:
    entry = {"line": number, "error": {"reason": err.reason, "message": err.detail}}
    return Reply(
        encode_json(entry), allowed=False, problem=f"{source}: line {number}: {err.detail}"
    )


def _opened(source: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if source == STDIN:
        return contextlib.nullcontext(stdin())
    try:
        return Path(source).open("rb")
    except OSError as err:
        raise InputError(f"{source}: {err.strerror}") from err
