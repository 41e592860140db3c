"""`deferred-quota doctor`: look a cluster over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from webhook.cli.cluster_context import (
    answers_all,
    finding_entry,
    finding_lines,
    read_bundle,
    refusal,
    refusal_at,
    served_at,
)
from webhook.cli.cluster_options import live_cluster, progress, snapshot_reader
from webhook.cli.exit_codes import ExitCode, InputError
from webhook.cli.files.configuration import configuration_of
from webhook.cli.printing.output import print_structured
from webhook.config import Configuration
from webhook.fakecluster.manifests.snapshot_client import SnapshotClient
from webhook.kube.api import PODS, ClusterApi, Kind, Object
from webhook.kube.files.snapshot_format import SnapshotExtent
from webhook.operations.deployments import DEPLOYMENTS, system_namespace_of
from webhook.operations.doctor.check_context import CheckContext, Settings
from webhook.operations.doctor.runner import CHECKS, Examination, examine
from webhook.operations.findings import Severity


def run(  # noqa: PLR0913, PLR0917 - one for each option
    namespaces: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    system_namespace: str | None,
    config: Path | None,
    pause_seconds: float,
    fail_on: str,
    output: str,
) -> ExitCode:
    """Look whether everything is installed, enforced and counted as it should be."""
    reader = snapshot_reader(snapshots) if snapshots else live_cluster(kubeconfig, context)
    with reader as api:
        complete: frozenset[Kind] = frozenset()
        if isinstance(api, SnapshotClient):
            complete, api.extent = _complete(api.extent), SnapshotExtent()
        settings = replace(
            _settings(api, system_namespace, config),
            namespaces=tuple(dict.fromkeys(namespaces)),
            is_offline=bool(snapshots),
            complete=complete,
            pause_seconds=pause_seconds,
        )
        return examine_and_print(api, settings, fail_on=fail_on, output=output)


def _complete(extent: SnapshotExtent) -> frozenset[Kind]:
    """Return of which kinds a snapshot has all; what else it has none of, it may only lack."""
    kinds = (PODS, DEPLOYMENTS) if extent.taken is not None else ()
    return frozenset(one for one in kinds if not extent.lacks(f"{one.kind}.{one.api_version}", ""))


def _settings(api: ClusterApi, system_namespace: str | None, config: Path | None) -> Settings:
    place = system_namespace or system_namespace_of(api)
    rejected = ""
    try:
        configuration = configuration_of(api, config, place)
    except InputError as err:
        if config is not None:
            raise
        configuration, rejected = Configuration(), str(err)
    return replace(
        Settings.of(configuration, place),
        rejected=rejected,
        read_bundle=read_bundle,
        refusal=refusal,
        refusal_at=refusal_at,
        answers_all=answers_all,
        served_at=served_at,
        get_path=_get_path(api),
    )


def _get_path(api: ClusterApi) -> Callable[[str], Object]:
    """Return how paths of the API server are read, which files do not have."""
    from webhook.kube.rest import RestClient  # noqa: PLC0415 - slow to import

    if isinstance(api, RestClient):
        return api.raw
    return lambda _: {}


def examine_and_print(
    api: ClusterApi, settings: Settings, *, fail_on: str, output: str
) -> ExitCode:
    """Examine a cluster and print what was found."""
    found = examine(CheckContext(api, settings), report=progress)
    if output == "text":
        for finding in found.findings:
            click.echo("\n".join(finding_lines(finding)))
        click.echo(_summary(found), err=True)
    else:
        print_structured(_report(found), output)
    if found.has(Severity.ERROR):
        return ExitCode.FINDINGS
    if fail_on == "warn" and found.has(Severity.WARN):
        return ExitCode.DRIFT
    return ExitCode.OK


def _summary(found: Examination) -> str:
    counts = Counter(one.severity for one in found.findings)
    words = ", ".join(f"{severity}: {counts[severity]}" for severity in Severity)
    titles = {check.name: check.title for check in CHECKS}
    skipped = "".join(f"\nskipped: {titles[name]}: {why}" for name, why in found.skipped.items())
    return f"{len(found.checked)} of {len(CHECKS)} checks made; {words}{skipped}"


def _report(found: Examination) -> dict[str, object]:
    counts = Counter(one.severity for one in found.findings)
    return {
        "schemaVersion": 1,
        "summary": {severity.value: counts[severity] for severity in Severity},
        "findings": [finding_entry(one) for one in found.findings],
        "checked": list(found.checked),
        "skipped": [{"check": name, "reason": why} for name, why in found.skipped.items()],
    }
