"""`deferred-quota enable`: opt namespaces in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from webhook.cli.cluster_context import read_bundle
from webhook.cli.cluster_options import cluster_of, progress, retried
from webhook.cli.exit_codes import ExitCode
from webhook.cli.files.configuration import configuration_of
from webhook.cli.printing.enable_report import Outcome, print_text, report_of
from webhook.cli.printing.output import print_structured
from webhook.config import Configuration, MustSpecify
from webhook.kube.api import ClusterApi, ForbiddenError, UnauthorizedError
from webhook.operations.cluster_quotas import Company, company_of
from webhook.operations.deployments import system_namespace_of
from webhook.operations.doctor.check_context import Settings
from webhook.operations.enable import (
    installation_findings,
    obstacles,
    plan_for,
    set_label,
    still_missing,
    wait_until_complete,
)
from webhook.operations.enable_plan import Plan
from webhook.operations.findings import Finding
from webhook.operations.namespaces_at_once import NO_ANSWER, in_each
from webhook.operations.retry import RetryPolicy
from webhook.operations.shadow_mode import still_unwatched, watching_plan
from webhook.state.well_known import DEFERRED_MODE, SHADOW_MODE

_NO_ANSWER: Final = (*NO_ANSWER, UnauthorizedError)


def run(  # noqa: PLR0913, PLR0917 - one for each option
    namespaces: tuple[str, ...],
    dry_run: bool,
    is_shadow: bool,
    seconds: float,
    force: bool,
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    system_namespace: str | None,
    config: Path | None,
    output: str,
) -> ExitCode:
    """Opt namespaces in: their pods are charged when they get a node, not when they are created."""
    mode = SHADOW_MODE if is_shadow else DEFERRED_MODE
    wanted = tuple(dict.fromkeys(namespaces))
    if snapshots and not dry_run:
        raise click.UsageError("--snapshot is read-only: add --dry-run")
    with cluster_of(snapshots, kubeconfig, context) as api:
        patience = RetryPolicy(seconds=seconds, report=retried)
        place = system_namespace or system_namespace_of(api)
        configuration = configuration_of(api, config, place)
        settings = replace(
            Settings.of(configuration, place), is_offline=bool(snapshots), read_bundle=read_bundle
        )
        opting = Opting(api, configuration, settings, patience=patience, mode=mode)
        return opting.run(wanted, dry_run=dry_run, force=force, output=output)


class Opting:
    """Opts namespaces of one cluster in, and prints what was done."""

    def __init__(
        self,
        api: ClusterApi,
        configuration: Configuration,
        settings: Settings,
        *,
        patience: RetryPolicy,
        mode: str = DEFERRED_MODE,
    ) -> None:
        self._api = api
        self._mode = mode
        self._patience = patience
        self._must_specify = configuration.must_specify is not MustSpecify.OFF
        self._settings = settings

    def run(
        self, namespaces: Sequence[str], *, dry_run: bool, force: bool, output: str
    ) -> ExitCode:
        """Opt in, or only say what that would change."""
        installed = installation_findings(
            self._api, self._settings, namespaces, mode=self._mode, report=progress
        )
        stopped = bool(obstacles(installed, force=force))
        company = self._company(namespaces)
        outcomes = {name: Outcome(Plan(name, is_opted_in=False)) for name in namespaces}

        def one(namespace: str, patience: RetryPolicy) -> None:
            outcome = outcomes[namespace]
            outcome.plan = self._plan(namespace, company)
            self._one(outcome, patience, dry_run=dry_run, force=force, stopped=stopped)

        done = in_each(
            namespaces, one, patience=self._patience, report=progress, no_answer=_NO_ANSWER
        )
        for ended in done.each:
            outcomes[ended.name].error = ended.why
        self._print(installed, tuple(outcomes.values()), dry_run=dry_run, output=output)
        done.check_ended()
        every = outcomes.values()
        if any(one.error or (one.is_refused and not one.was_set) for one in every):
            return ExitCode.FINDINGS
        return (
            ExitCode.DRIFT if any(one.missing or one.is_refused for one in every) else ExitCode.OK
        )

    def _print(
        self,
        installed: Sequence[Finding],
        outcomes: Sequence[Outcome],
        *,
        dry_run: bool,
        output: str,
    ) -> None:
        if output == "text":
            print_text(installed, outcomes, dry_run=dry_run, mode=self._mode)
        else:
            report = report_of(installed, outcomes, dry_run=dry_run, mode=self._mode)
            print_structured(report, output)

    def _one(
        self,
        outcome: Outcome,
        patience: RetryPolicy,
        *,
        dry_run: bool,
        force: bool,
        stopped: bool,
    ) -> None:
        """Opt a namespace in, and note how far that went: it may end at any call."""
        plan, namespace = outcome.plan, outcome.plan.namespace
        outcome.was_set = plan.is_opted_in if self._mode == DEFERRED_MODE else plan.is_shadow
        if stopped or obstacles(plan.findings, force=force):
            outcome.is_refused = True
            return
        if patience.halt is not None:
            patience.halt.check()
        if not outcome.was_set and not self._settings.is_offline:
            set_label(self._api, namespace, mode=self._mode, dry_run=dry_run)
        if dry_run:
            return
        outcome.is_set = not outcome.was_set
        outcome.missing = wait_until_complete(
            namespace, lambda: self._missing(namespace), patience=patience, report=progress
        )

    def _company(self, namespaces: Sequence[str]) -> Company | None:
        try:
            return company_of(self._api, namespaces, is_shadow=self._mode == SHADOW_MODE)
        except ForbiddenError:
            return None  # told of each namespace

    def _plan(self, namespace: str, company: Company | None) -> Plan:
        plan = plan_for if self._mode == DEFERRED_MODE else watching_plan
        must_specify = self._must_specify
        return plan(
            self._api, self._settings, namespace, must_specify=must_specify, company=company
        )

    def _missing(self, namespace: str) -> tuple[str, ...]:
        look = still_missing if self._mode == DEFERRED_MODE else still_unwatched
        return look(self._api, self._settings, namespace)
