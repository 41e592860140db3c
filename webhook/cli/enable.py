"""`deferred-quota enable`: opt namespaces in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from webhook.cli.access import (
    cluster_options,
    live_cluster,
    progress,
    snapshot_cluster,
    snapshot_option,
)
from webhook.cli.exits import ExitCode, printable
from webhook.cli.judging import (
    configuration_of,
    finding_entry,
    finding_lines,
    installed_config_option,
    read_bundle,
)
from webhook.cli.options import Command, output_option
from webhook.cli.output import print_table
from webhook.cli.reports import FORMATS, print_structured
from webhook.cluster.api import ClusterApi
from webhook.config import Configuration, MustSpecify
from webhook.operations.doctor import Settings
from webhook.operations.findings import Finding, Severity
from webhook.operations.opting_in import (
    installation_findings,
    obstacles,
    plan_for,
    set_label,
    still_missing,
    wait_until_complete,
)
from webhook.operations.patience import Patience
from webhook.operations.plan import Plan, QuotaPlan
from webhook.operations.shadowing import still_unwatched, watching_plan
from webhook.quota.names import DEFERRED_KEYS
from webhook.state.names import DEFERRED_MODE, SHADOW_MODE


@dataclass(slots=True)
class _Outcome:
    """What became of one namespace; `missing` is what it still waits for."""

    plan: Plan
    is_refused: bool = False
    was_set: bool = False
    is_set: bool = False
    missing: tuple[str, ...] = field(default=())


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota enable team-a --dry-run
  deferred-quota enable team-a team-b
  deferred-quota enable team-a --wait 300 -o json
  deferred-quota enable team-a --dry-run --snapshot cluster.yaml
  deferred-quota enable --shadow team-a && deferred-quota shadow report team-a

\b
Exit status: 0 opted in and in force, 1 refused: something stands in the way,
3 opted in, but not in force when the time was up, 4 the cluster does not answer.
""",
)
@click.argument("namespaces", nargs=-1, required=True, metavar="NAMESPACE...")
@click.option("--dry-run", is_flag=True, help="Say what would change and change nothing.")
@click.option(
    "--shadow",
    "is_shadow",
    is_flag=True,
    help="Only watch: nothing is refused, gated or masked, and `deferred-quota shadow report` says"
    " what deferring would change.",
)
@click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for each namespace until its quotas are deferred.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Opt in although something stands in the way, such as a mask that is missing. Not"
    " overridden: a missing definition of ledgers, an exempt namespace.",
)
@cluster_options
@snapshot_option
@installed_config_option
@output_option(*FORMATS)
def enable(  # noqa: PLR0913, PLR0917 - one for each option
    namespaces: tuple[str, ...],
    dry_run: bool,
    is_shadow: bool,
    seconds: float,
    force: bool,
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    config: Path | None,
    output: str,
) -> ExitCode:
    """Opt namespaces in: their pods are charged when they get a node, not when they are created.

    Looks first whether everything needed is installed and alive, and what the namespaces hold;
    errors stand in the way, warnings are told. Then sets the label and waits until every quota is
    masked and counted. Run again, it verifies. No pod is touched.
    """
    mode = SHADOW_MODE if is_shadow else DEFERRED_MODE
    wanted = tuple(dict.fromkeys(namespaces))
    if snapshots and not dry_run:
        raise click.UsageError("--snapshot can only be looked at: add --dry-run")
    if snapshots:
        with snapshot_cluster(snapshots) as api:
            opting = Opting(api, configuration_of(api, config), is_offline=True, mode=mode)
            return opting.run(wanted, dry_run=True, force=force, output=output)
    with live_cluster(kubeconfig, context) as api:
        patience = Patience(seconds=seconds)
        opting = Opting(api, configuration_of(api, config), patience=patience, mode=mode)
        return opting.run(wanted, dry_run=dry_run, force=force, output=output)


class Opting:
    """Opts namespaces of one cluster in, and prints what was done."""

    def __init__(
        self,
        api: ClusterApi,
        configuration: Configuration,
        *,
        patience: Patience = Patience(),  # noqa: B008 - frozen
        is_offline: bool = False,
        settings: Settings | None = None,
        mode: str = DEFERRED_MODE,
    ) -> None:
        self._api = api
        self._mode = mode
        self._patience = patience
        self._must_specify = configuration.must_specify is not MustSpecify.OFF
        self._is_offline = is_offline
        self._settings = settings or Settings(
            deferred_keys=DEFERRED_KEYS | set(configuration.deferred_resources),
            exempt=configuration.exempt_namespaces,
            pacing=configuration.pacing,
            is_offline=is_offline,
            read_bundle=read_bundle,
        )

    def run(
        self, namespaces: Sequence[str], *, dry_run: bool, force: bool, output: str
    ) -> ExitCode:
        """Opt in, or only say what that would change."""
        installed = installation_findings(
            self._api, self._settings, namespaces, mode=self._mode, report=progress
        )
        stopped = bool(obstacles(installed, force=force))
        outcomes = [
            self._one(name, dry_run=dry_run, force=force, stopped=stopped) for name in namespaces
        ]
        if output == "text":
            _print_text(installed, outcomes, dry_run=dry_run, mode=self._mode)
        else:
            report = _report(installed, outcomes, dry_run=dry_run, mode=self._mode)
            print_structured(report, output)
        if any(outcome.is_refused for outcome in outcomes):
            return ExitCode.FINDINGS
        return ExitCode.DRIFT if any(one.missing for one in outcomes) else ExitCode.OK

    def _one(self, namespace: str, *, dry_run: bool, force: bool, stopped: bool) -> _Outcome:
        plan = self._plan(namespace)
        is_set = plan.is_opted_in if self._mode == DEFERRED_MODE else plan.is_shadow
        if stopped or obstacles(plan.findings, force=force):
            return _Outcome(plan, is_refused=True)
        if not is_set and not self._is_offline:
            set_label(self._api, namespace, mode=self._mode, dry_run=dry_run)
        if dry_run:
            return _Outcome(plan, was_set=is_set)
        missing = wait_until_complete(
            namespace,
            lambda: self._missing(namespace),
            patience=self._patience,
            report=progress,
        )
        return _Outcome(plan, was_set=is_set, is_set=not is_set, missing=missing)

    def _plan(self, namespace: str) -> Plan:
        plan = plan_for if self._mode == DEFERRED_MODE else watching_plan
        return plan(self._api, self._settings, namespace, must_specify=self._must_specify)

    def _missing(self, namespace: str) -> tuple[str, ...]:
        look = still_missing if self._mode == DEFERRED_MODE else still_unwatched
        return look(self._api, self._settings, namespace)


def _print_text(
    installed: Sequence[Finding], outcomes: Sequence[_Outcome], *, dry_run: bool, mode: str
) -> None:
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


def _verdict(outcome: _Outcome, *, dry_run: bool) -> str:
    if outcome.is_refused:
        return "not opted in: the errors above stand in the way"
    if dry_run:
        return "has opted in already" if outcome.plan.is_opted_in else "would be opted in"
    if outcome.missing:
        return "opted in, but not in force yet; run this again to see whether it is"
    return "opted in" if outcome.is_set else "had opted in already, and is in force"


def _shadow_verdict(outcome: _Outcome, *, dry_run: bool) -> str:
    if outcome.is_refused:
        return "not watched: the errors above stand in the way"
    if dry_run:
        return "is in shadow mode already" if outcome.was_set else "would be watched"
    if outcome.missing:
        return "in shadow mode, but not watched yet; run this again to see whether it is"
    return "in shadow mode" if outcome.is_set else "was in shadow mode already, and is watched"


def _report(
    installed: Sequence[Finding], outcomes: Sequence[_Outcome], *, dry_run: bool, mode: str
) -> dict[str, object]:
    return {
        "schemaVersion": 1,
        "dryRun": dry_run,
        "mode": mode,
        "installation": [finding_entry(one) for one in installed],
        "namespaces": [_entry(outcome) for outcome in outcomes],
    }


def _entry(outcome: _Outcome) -> dict[str, object]:
    plan = outcome.plan
    return {
        "namespace": plan.namespace,
        "wasOptedIn": plan.is_opted_in,
        "wasWatched": plan.is_shadow,
        "refused": outcome.is_refused,
        "labelSet": outcome.is_set,
        "missing": list(outcome.missing),
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
