"""`deferred-quota emergency open` and `close`: what is about to be done, then that it is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click

from webhook.cli.cluster_context import finding_lines
from webhook.cli.cluster_options import RefusedError, live_cluster, retried
from webhook.cli.emergency.printing import (
    announce_closing,
    announce_opening,
    print_closed,
    print_opened,
)
from webhook.cli.exit_codes import ExitCode, confirm_on_terminal, printable
from webhook.cli.files.configuration import configuration_of
from webhook.install.apply import InstallApi
from webhook.install.emergency.closing import (
    Closed,
    close_emergency,
    unreached_reason,
    wait_for_counts,
)
from webhook.install.emergency.opening import (
    Opened,
    OpeningPlan,
    deferred_namespaces,
    open_emergency,
    plan_opening,
    preview_namespace,
)
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ClusterApi
from webhook.operations.deployments import system_namespace_of
from webhook.operations.doctor.check_context import CheckContext, Settings
from webhook.operations.doctor.runner import CHECKS, examine
from webhook.operations.enable import still_missing
from webhook.operations.findings import Finding, Severity
from webhook.operations.retry import RetryPolicy, silent

_NEEDED = frozenset({"crd", "leader"})
"""The checks of the doctor without which nothing would be counted."""


def run_open(
    dry_run: bool,
    yes: bool,
    releases: bool,
    seconds: float,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
) -> ExitCode:
    """Open the emergency."""
    with live_cluster(kubeconfig, context) as api:
        return open_on(
            api,
            dry_run=dry_run,
            asks=not yes,
            releases=releases,
            patience=RetryPolicy(seconds=seconds, report=retried),
            output=output,
        )


def open_on(
    api: ClusterApi,
    *,
    dry_run: bool,
    asks: bool,
    releases: bool,
    patience: RetryPolicy,
    output: str,
) -> ExitCode:
    """Open the emergency of a cluster and print what was done."""
    plan = _plan(api, patience)
    announce_opening(plan, releases=releases, dry_run=dry_run)
    if not plan.state.opened and not plan.state.asking:
        raise RefusedError(
            "no webhook of deferred-quota is registered, so there is nothing to open; if quotas are"
            " not enforced, run: deferred-quota disable NAMESPACE"
        )
    if dry_run:
        native = tuple(preview_namespace(api, one, releases=releases) for one in plan.namespaces)
        done = Opened(plan.state.since, 0, native)
    else:
        if asks:
            confirm_on_terminal("Open the emergency?")
        done = open_emergency(api, plan, _say, releases=releases, patience=patience)
    print_opened(done, dry_run=dry_run, output=output)
    is_left = done.problems or any(one.problems for one in done.namespaces)
    return ExitCode.DRIFT if is_left else ExitCode.OK


def run_close(  # noqa: PLR0913, PLR0917 - one for each option
    dry_run: bool,
    yes: bool,
    force: bool,
    seconds: float,
    kubeconfig: Path | None,
    context: str | None,
    system_namespace: str | None,
    config: Path | None,
    output: str,
) -> ExitCode:
    """Close the emergency."""
    with live_cluster(kubeconfig, context) as api:
        place = system_namespace or system_namespace_of(api)
        configuration = configuration_of(api, config, place)
        return close_on(
            api,
            Settings.of(configuration, place),
            dry_run=dry_run,
            asks=not yes,
            force=force,
            patience=RetryPolicy(seconds=seconds, report=retried),
            output=output,
        )


def close_on(
    api: ClusterApi,
    settings: Settings,
    *,
    dry_run: bool,
    asks: bool,
    force: bool,
    patience: RetryPolicy,
    output: str,
) -> ExitCode:
    """Close the emergency of a cluster and print what was done."""
    plan = _plan(api, patience)

    def opted_in() -> tuple[str, ...]:
        return tuple(
            one for one in deferred_namespaces(api, patience) if one not in settings.exempt
        )

    namespaces = tuple(one for one in plan.namespaces if one not in settings.exempt)
    announce_closing(plan, namespaces, dry_run=dry_run)
    done = Closed()
    if plan.state.is_begun:
        obstacles = (
            [] if force else _obstacles(api, settings, namespaces, patience, dry_run=dry_run)
        )
        if obstacles:
            raise RefusedError([*obstacles, "fix this, or close anyway with --force"])
        if dry_run:
            return ExitCode.OK
        if asks:
            confirm_on_terminal("Close the emergency?")
        done = close_emergency(api, opted_in, _say, patience=patience)
    elif dry_run:
        return ExitCode.OK
    counted = wait_for_counts(
        api,
        () if done.problems or force else namespaces,
        lambda namespace: still_missing(api, settings, namespace),
        _say,
        patience=patience,
    )
    print_closed(done, counted, was_open=plan.state.is_begun, is_forced=force, output=output)
    is_left = done.problems or any(one.missing for one in counted)
    return ExitCode.DRIFT if is_left else ExitCode.OK


def _plan(api: ClusterApi, patience: RetryPolicy) -> OpeningPlan:
    try:
        return plan_opening(api, patience, silent)
    except InvalidFieldError as err:
        raise RefusedError(f"a registration cannot be read: {err}") from err


def _obstacles(
    api: ClusterApi,
    settings: Settings,
    namespaces: Sequence[str],
    patience: RetryPolicy,
    *,
    dry_run: bool,
) -> list[str]:
    """Return why nothing would be bound after the guards are back."""
    checks = tuple(check for check in CHECKS if check.name in _NEEDED)
    found = examine(CheckContext(api, settings), checks).findings
    lines = [line for one in found if one.severity is Severity.ERROR for line in _lines(one)]
    if dry_run:
        return lines  # to see whether the webhook is reached takes a registration
    reason = unreached_reason(cast("InstallApi", api), namespaces, patience)
    return [*lines, f"the API server does not reach the webhook: {reason}"] if reason else lines


def _lines(finding: Finding) -> list[str]:
    return [click.unstyle(line).strip() for line in finding_lines(finding)]


def _say(text: str) -> None:
    """Print what was just done: an interruption then shows how far it came."""
    click.echo(printable(text), err=True)
