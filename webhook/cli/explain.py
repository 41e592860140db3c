"""`deferred-quota explain`: why a pod, or a workload, is pending."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from webhook.cli.cluster_options import (
    RefusedError,
    live_cluster,
    namespace_of,
    snapshot_reader,
    watched,
)
from webhook.cli.exit_codes import ExitCode, InputError
from webhook.cli.files.configuration import configuration_of
from webhook.cli.options import uncollected
from webhook.cli.printing.explanation_report import print_explanation
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ClusterApi
from webhook.operations.deployments import system_namespace_of
from webhook.operations.explain.explaining import KINDS, NotThereError, Target, explain
from webhook.operations.explain.session import ExplainOptions
from webhook.quota.explaining.values import CauseKind, Explanation

_SETTLED = frozenset({CauseKind.ALREADY_RUNNING})


def run(  # noqa: PLR0913, PLR0917 - one for each option
    kind: str,
    name: str,
    namespace: str | None,
    watches: bool,
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    system_namespace: str | None,
    config: Path | None,
    output: str,
) -> ExitCode:
    """Explain why an object is pending."""
    if snapshots and watches:
        raise click.UsageError("--watch cannot be used with --snapshot")
    place = namespace_of(namespace, kubeconfig, context, is_live=not snapshots)
    target = Target(KINDS[kind], place, name)
    if snapshots:
        with uncollected(), snapshot_reader(snapshots) as api:
            options = _options(api, system_namespace, config)
            options = replace(options, is_offline=True, taken=api.extent.taken)
            return explain_and_print(api, target, options, output)
    with live_cluster(kubeconfig, context) as api:
        options = _options(api, system_namespace, config)
        if watches:
            return watch(api, target, options, output)
        return explain_and_print(api, target, options, output)


def _options(api: ClusterApi, system_namespace: str | None, config: Path | None) -> ExplainOptions:
    place = system_namespace or system_namespace_of(api)
    return ExplainOptions(configuration_of(api, config, place), place)


def explain_and_print(
    api: ClusterApi, target: Target, options: ExplainOptions, output: str
) -> ExitCode:
    """Explain an object of a cluster and print the answer."""
    print_explanation(_explained(api, target, options), output)
    return ExitCode.OK


def _explained(api: ClusterApi, target: Target, options: ExplainOptions) -> Explanation:
    try:
        return explain(api, target, options)
    except NotThereError as err:
        raise RefusedError(str(err)) from err
    except InvalidFieldError as err:
        where = f"{target.kind.kind} {target.namespace}/{target.name}"
        raise InputError(f"{where}: {err}") from err


def watch(api: ClusterApi, target: Target, options: ExplainOptions, output: str) -> ExitCode:
    """Print an answer whenever it changes, until the object runs or is gone."""
    before: Explanation | None = None
    for explained in watched(partial(_explained, api, target, options), options.sleep):
        if before is None or (explained.text, explained.uid) != (before.text, before.uid):
            if before is not None and output == "text":
                click.echo(_since(before, explained))
            print_explanation(explained, output)
            before = explained
        if explained.cause in _SETTLED:
            break
    return ExitCode.OK


def _since(before: Explanation, explained: Explanation) -> str:
    is_anew = explained.kind == "Pod" and before.uid != explained.uid
    return f"\n{explained.kind} {explained.name} was created again" if is_anew else ""
