"""`certs status|check|init|renew|rotate-ca|inject|export`: those of an installation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from webhook.cli.cluster_options import live_cluster
from webhook.cli.exit_codes import CommandError, ExitCode, InputError, printable
from webhook.cli.printing.output import print_json
from webhook.kube.api import VALIDATING_WEBHOOKS, ClusterApi, find_object
from webhook.operations.deployments import asked_at, system_namespace_of
from webhook.state.well_known import CA_SECRET, REGISTRATION, TLS_SECRET
from webhook.tls.bundles import trusted
from webhook.tls.issue import Issued
from webhook.tls.pair import certificate_of, issued_problems
from webhook.tls.rotation import (
    Inject,
    InstalledCertificates,
    Renewed,
    Surroundings,
    Wait,
    WriteCa,
    WriteServing,
    next_step,
    phase_of,
    renewal_of,
)
from webhook.tls.rotation_store import (
    CertificateStore,
    ForeignCertificatesError,
    RegisteredEntry,
    WrongClockError,
    rotate,
    spec_for,
)


class _RefusedError(CommandError):
    """Certificates of another program, or a clock that they cannot be made by."""

    exit_code = int(ExitCode.FINDINGS)


class _OutsideError(_RefusedError):
    """The webhook is outside of the cluster, where its certificates are no Secrets of ours."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"the webhook is at {place}, outside of the cluster: its certificates are files of"
            " yours, see deferred-quota certs show; deferred-quota doctor looks at what is served"
        )
        self.place = place


_TIME: Final = "%Y-%m-%d %H:%M UTC"
_REREADS: Final = 3
"""How often a registration may be applied again meanwhile."""


def run_status(
    kubeconfig: Path | None,
    context: str | None,
    system_namespace: str | None,
    output: str = "text",
    *,
    only_problems: bool = False,
) -> ExitCode:
    """Show the certificates of an installation; exit status 1 where they are not as they should."""
    now = datetime.now(UTC)
    try:
        with _installation(kubeconfig, context, system_namespace) as (api, namespace):
            store = CertificateStore(api, namespace)
            held, entries = store.read().held, store.entries()
    except _OutsideError as err:
        if output == "json":
            print_json({"schemaVersion": 1, "url": err.place, "problems": []})
        elif not only_problems:
            click.echo(str(err))
        return ExitCode.OK
    problems = _problems(held, entries, namespace, now)
    report = _described(held, entries, now)
    if output == "json":
        print_json({"schemaVersion": 1, **report, "problems": problems})
    else:
        for line in () if only_problems else _lines(report):
            click.echo(line)
        for problem in problems:
            click.echo(f"problem: {problem}")
    return ExitCode.FINDINGS if problems else ExitCode.OK


def run_rotation(
    kubeconfig: Path | None,
    context: str | None,
    system_namespace: str | None,
    *,
    dry_run: bool,
    forces: Renewed | None = None,
) -> ExitCode:
    """Take the steps that are due, and those that are asked for."""
    with _installation(kubeconfig, context, system_namespace) as (api, namespace):
        store, spec = CertificateStore(api, namespace), spec_for(namespace)
        if dry_run:
            around = Surroundings(
                now=datetime.now(UTC),
                bundles=tuple(one.bundle for one in store.entries()),
                forces=forces,
            )
            step = next_step(store.read().held, spec, around)
            match step:
                case Wait():
                    _tell_wait(step)
                case Inject():
                    click.echo(f"would write the caBundle of registrations: {step.reason}")
                case WriteCa():
                    click.echo(f"would write Secret {namespace}/{CA_SECRET}: {step.reason}")
                case WriteServing():
                    click.echo(f"would write Secret {namespace}/{TLS_SECRET}: {step.reason}")
            return ExitCode.OK
        result = rotate(
            store,
            spec,
            store.entries(),
            clock=lambda: datetime.now(UTC),
            forces=forces,
            rereads=_REREADS,
        )
    for _, words in result.done:
        click.echo(words)
    _tell_wait(result.waits)
    return ExitCode.OK


def run_injection(
    kubeconfig: Path | None, context: str | None, system_namespace: str | None, *, dry_run: bool
) -> ExitCode:
    """Write the CAs into the registrations that lack them."""
    with _installation(kubeconfig, context, system_namespace) as (api, namespace):
        store = CertificateStore(api, namespace, dry_run=dry_run)
        bundle = store.read().held.bundle
        if not trusted(bundle):
            raise InputError(
                f"Secret {namespace}/{TLS_SECRET}, ca.crt: has no certificate; create it with:"
                " deferred-quota certs init"
            )
        step = Inject(bundle, b"", "the registrations lack it")
        names = store.inject(step, store.entries())
    for name in names:
        click.echo(f"{'would write' if dry_run else 'written'}: caBundle of {printable(name)}")
    if not names:
        click.echo("all registrations have the caBundle")
    return ExitCode.OK


def run_export(
    kubeconfig: Path | None, context: str | None, system_namespace: str | None
) -> ExitCode:
    """Print the trusted CAs."""
    with _installation(kubeconfig, context, system_namespace) as (api, namespace):
        bundle = CertificateStore(api, namespace).read().held.bundle
    if not trusted(bundle):
        raise InputError(f"Secret {namespace}/{TLS_SECRET}, ca.crt: has no certificate")
    click.echo(bundle.decode("ascii"), nl=False)
    return ExitCode.OK


@contextmanager
def _installation(
    kubeconfig: Path | None, context: str | None, namespace: str | None
) -> Iterator[tuple[ClusterApi, str]]:
    with live_cluster(kubeconfig, context) as api:
        place = asked_at(find_object(api, VALIDATING_WEBHOOKS, REGISTRATION) or {})
        if place:
            raise _OutsideError(printable(place))
        try:
            yield api, namespace or system_namespace_of(api)
        except (ForeignCertificatesError, WrongClockError) as err:
            raise _RefusedError(str(err)) from err


def _problems(
    held: InstalledCertificates,
    entries: Sequence[RegisteredEntry],
    namespace: str,
    now: datetime,
) -> list[str]:
    found: list[str] = []
    if held.ca is None:
        found.append(f"Secret {namespace}/{CA_SECRET}: missing or empty")
    else:
        ca_problems = issued_problems(held.ca, now=now, serving=False)
        found += [f"Secret {namespace}/{CA_SECRET}, {one}" for one in ca_problems]
    if held.serving is None:
        found.append(f"Secret {namespace}/{TLS_SECRET}: missing or empty")
    else:
        names = spec_for(namespace).dns_names
        leaf_problems = issued_problems(held.serving, now=now, names=names)
        found += [f"Secret {namespace}/{TLS_SECRET}, {one}" for one in leaf_problems]
    if not entries:
        found.append(f"no registration calls the Service in namespace {namespace}")
    wanted = set(trusted(held.bundle))
    found += [
        f"{one.kind.kind} {one.registration}, {one.name}: its caBundle lacks a trusted CA"
        for one in entries
        if not wanted.issubset(trusted(one.bundle)) or not wanted
    ]
    return found


def _described(
    held: InstalledCertificates, entries: Sequence[RegisteredEntry], now: datetime
) -> dict[str, object]:
    return {
        "phase": str(phase_of(held, now)),
        "generation": held.generation,
        "ca": _facts(held.ca, now),
        "serving": _facts(held.serving, now),
        "trusted": [one.subject.rfc4514_string() for one in trusted(held.bundle)],
        "formerUntil": "" if held.former_until is None else held.former_until.isoformat(),
        "entries": len(entries),
    }


def _facts(pair: Issued | None, now: datetime) -> dict[str, object] | None:
    found = certificate_of(pair)
    if found is None:
        return None
    return {
        "subject": found.subject.rfc4514_string(),
        "notAfter": found.not_valid_after_utc.isoformat(),
        "renewal": renewal_of(found).isoformat(),
        "daysLeft": (found.not_valid_after_utc - now).days,
    }


def _lines(report: dict[str, object]) -> list[str]:
    lines = [f"phase     {report['phase']}"]
    for role, name in (("ca", "CA"), ("serving", "serving")):
        facts = report[role]
        if isinstance(facts, dict):
            lines.append(
                f"{name:9} {facts['subject']}, {facts['daysLeft']} days left, renewed on"
                f" {datetime.fromisoformat(str(facts['renewal'])):%Y-%m-%d}"
            )
        else:
            lines.append(f"{name:9} missing or unreadable")
    subjects = report["trusted"]
    if isinstance(subjects, list):
        lines += [f"trusted   {subject}" for subject in subjects]
    lines.append(f"entries   {report['entries']} registered entries call the Service")
    return lines


def _tell_wait(step: Wait) -> None:
    click.echo(f"phase {step.phase}; nothing is due before {step.until:{_TIME}}")
