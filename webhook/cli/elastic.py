"""`deferred-quota elastic`: elastic quotas, and plans to reclaim what is lent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import sleep

import click

from webhook.cli.cluster_options import (
    RefusedError,
    live_cluster,
    namespace_of,
    snapshot_reader,
    watched,
)
from webhook.cli.exit_codes import ExitCode, InputError, printable
from webhook.cli.files.configuration import configuration_of
from webhook.cli.files.inputs import Manifest, read_manifests
from webhook.cli.printing.elastic_report import print_plan, print_quotas, quota_entries
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import PODS, ClusterApi, NotFoundError, Object
from webhook.operations.deployments import system_namespace_of
from webhook.operations.elastic.planning import NotPlannedError, plan_for
from webhook.operations.elastic.reading import Elastic, read_elastic
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.quota.charging.workload_pods import pods_of
from webhook.quota.elastic.capacity import LabelOrder
from webhook.quota.objects.defaults import default_pod


@contextmanager
def _session(
    kubeconfig: Path | None, context: str | None, snapshots: tuple[Path, ...]
) -> Iterator[Session]:
    if snapshots:
        with snapshot_reader(snapshots) as api:
            options = replace(_options(api), is_offline=True, taken=api.extent.taken)
            yield Session(api, options)
    else:
        with live_cluster(kubeconfig, context) as api:
            yield Session(api, _options(api))


def _options(api: ClusterApi) -> ExplainOptions:
    place = system_namespace_of(api)
    return ExplainOptions(configuration_of(api, None, place), place)


def show(
    watches: bool,
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    gb_per_gpu: int,
    output: str,
) -> ExitCode:
    """Show the elastic quotas."""
    if snapshots and watches:
        raise click.UsageError("--watch cannot be used with --snapshot")
    with _session(kubeconfig, context, snapshots) as session:
        if not watches:
            print_quotas(_read(session, gb_per_gpu), output)
            return ExitCode.OK
        before: Elastic | None = None
        for elastic in watched(partial(_read, session, gb_per_gpu), sleep):
            if before is None or quota_entries(elastic) != quota_entries(before):
                if before is not None:
                    click.echo()
                print_quotas(elastic, output)
            before = elastic
    return ExitCode.OK


def _read(session: Session, gb_per_gpu: int) -> Elastic:
    session.unknown.clear()
    elastic = read_elastic(session, gb_per_gpu)
    _note(elastic.notes)
    return elastic


def _note(notes: tuple[str, ...]) -> None:
    for note in notes:
        click.echo(f"note: {printable(note)}", err=True)


def plan(  # noqa: PLR0913, PLR0917 - one for each option
    pod: str,
    namespace: str | None,
    filename: str | None,
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    gb_per_gpu: int,
    label_order: str,
    output: str,
) -> ExitCode:
    """Print which pods would have to go for one."""
    if bool(pod) is (filename is not None):
        both = ", not both" if pod else ""
        raise click.UsageError(f"give POD or -f FILE{both}")
    place = namespace_of(namespace, kubeconfig, context, is_live=not snapshots)
    given = None if filename is None else _pod_of_file(filename, place)
    with _session(kubeconfig, context, snapshots) as session:
        raw = _stored(session, place, pod) if given is None else given
        elastic = read_elastic(session, gb_per_gpu)
        try:
            found = plan_for(session, elastic, raw, LabelOrder(label_order))
        except NotPlannedError as err:
            _note(elastic.notes)
            raise RefusedError(str(err)) from err
        except InvalidFieldError as err:
            raise InputError(f"pod {place}/{pod}: {err}") from err
    _note(found.notes)
    print_plan(found, output)
    return ExitCode.OK if found.plan.is_possible else ExitCode.FINDINGS


def _stored(session: Session, namespace: str, name: str) -> Object:
    try:
        return session.api.get(PODS, name, namespace=namespace)
    except NotFoundError as err:
        raise RefusedError(f"pod {namespace}/{name} does not exist") from err


def _pod_of_file(filename: str, namespace: str) -> Object:
    """Return the pod of a manifest, as the API server would store it.

    Raises:
        InputError: The file cannot be read, or holds not exactly one object that makes pods.
    """

    def read(manifest: Manifest) -> Object | None:
        found = pods_of(manifest.object, field=manifest.field)
        if found is None:
            return None
        metadata = FieldReader(manifest.object, manifest.field).child("metadata")
        name = metadata.text("name") or f"{metadata.text('generateName')}*"
        placed = {
            "name": name,
            "namespace": metadata.text("namespace") or namespace,
            "labels": dict(
                FieldReader(found.pod, found.field).child("metadata").string_map("labels")
            ),
        }
        return {**default_pod(found.pod, field=found.field), "metadata": placed}

    pods = [pod for pod in read_manifests((filename,), read, recursive=False) if pod is not None]
    if len(pods) != 1:
        raise InputError(f"{filename}: must have 1 object that makes pods, has {len(pods)}")
    return pods[0]
