"""`deferred-quota check`: what a cluster would make of manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from webhook.cli.cluster_options import live_cluster, namespace_of, snapshot_reader
from webhook.cli.exit_codes import ExitCode, InputError
from webhook.cli.files.inputs import Content, Manifest, input_files, read_objects
from webhook.cli.options import keep, uncollected
from webhook.cli.printing.check_report import Output, write_report
from webhook.config import Configuration
from webhook.jsonfields.fields import InvalidFieldError, child
from webhook.kube.api import ClusterApi
from webhook.kube.files.documents import SnapshotError
from webhook.kube.files.positions import Positions, located
from webhook.operations.check.manifest_check import Checker, manifest_object
from webhook.operations.check.overlay import Overlay
from webhook.operations.check.state import ClusterState
from webhook.operations.check.values import (
    CheckOptions,
    Entry,
    FailOn,
    Ignore,
    Location,
    Problem,
    Report,
)
from webhook.operations.deployments import system_namespace_of
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.operations.findings import Severity
from webhook.quota.checking.rollouts import Rollout
from webhook.quota.checking.template_paths import TemplatePath, TemplatePathError
from webhook.quota.checking.values import Rule
from webhook.state.well_known import DEFAULT_NAMESPACE

_TEMPLATE: Final = re.compile(r"\{\{.*\}\}", re.DOTALL)
_DIRECTIVE: Final = re.compile(
    r"\{\{-?\s*(\.(Values|Release|Chart|Capabilities|Files|Template)|"
    r"(include|template|if|else|end|range|with|define|toYaml|printf|/\*)\b|\$)"
)
_NOT_RENDERED: Final = (
    "this is a Helm template that was not rendered: check the output of 'helm template'"
)
_CHART_FILES: Final = frozenset({"Chart.yaml", "values.yaml"})
_CHART: Final = "this is a file of a Helm chart: check the output of 'helm template'"
_LEAST: Final[Mapping[FailOn, frozenset[Severity]]] = {
    FailOn.REFUSE: frozenset({Severity.ERROR}),
    FailOn.WAIT: frozenset({Severity.ERROR, Severity.WARN}),
    FailOn.WARN: frozenset(Severity),
    FailOn.NEVER: frozenset(),
}


def run(  # noqa: PLR0913, PLR0917 - one for each option
    filenames: tuple[str, ...],
    recursive: bool,
    namespace: str | None,
    live: bool,
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    config: Path | None,
    rollout: str,
    max_simultaneous_rollouts: int | None,
    nodes: int | None,
    template_paths: tuple[str, ...],
    ignored: tuple[str, ...],
    fail_on: str,
    outputs: tuple[str, ...],
) -> ExitCode:
    """Judge manifests."""
    is_live = live or kubeconfig is not None or context is not None
    if snapshots and is_live:
        raise click.UsageError("--snapshot cannot be used with --live, --kubeconfig or --context")
    options = CheckOptions(
        Rollout(rollout),
        max_simultaneous_rollouts,
        tuple(map(_template_path, template_paths)),
        nodes,
        tuple(map(_ignore, ignored)),
    )
    targets = tuple(map(Output.parse, outputs)) or (Output("text"),)
    if sum(not one.file for one in targets) > 1:
        raise click.UsageError("only one output can go to standard output: give the others a file")
    manifests = Manifests(namespace_of(namespace, kubeconfig, context, is_live=is_live))
    keep(manifests)
    with uncollected():
        manifests.read(filenames, recursive=recursive)
        with _cluster(kubeconfig, context, snapshots, is_live=is_live) as api:
            is_known = bool(snapshots) or is_live
            session = Session(api, _read_options(api, config, is_live=is_live, is_known=is_known))
            state = ClusterState(session, manifests.overlay, is_known=is_known)
            report = manifests.checked(state, options)
            keep(report)
    write_report(report, targets)
    return _exit_code(report, FailOn(fail_on))


class Manifests:
    """The objects of the input, and what of it cannot be read."""

    def __init__(self, namespace: str) -> None:
        self.overlay = Overlay()
        self._namespace = namespace
        self._entries: list[Entry] = []
        self._first: dict[tuple[str, str, str], Entry] = {}
        """Resource, namespace and name → the first object that has them."""
        self._problems: list[SnapshotError] = []
        self._positions = Positions()

    def read(self, filenames: Sequence[str], *, recursive: bool) -> None:
        """Read all objects; what cannot be read is kept for the report.

        Raises:
            InputError: There is no file, or one cannot be found.
        """
        contents = self._kept(input_files(filenames, recursive=recursive))
        self._entries, self._problems = read_objects(contents, self._entry)
        if not self._entries and not self._problems:
            raise InputError("no object in the input")

    def checked(self, state: ClusterState, options: CheckOptions) -> Report:
        """Judge the objects.

        Raises:
            ApiError: The cluster does not answer.
        """
        report = Checker(state, options, self._positions).check(self._entries)
        unread = [self._problem(one) for one in self._problems]
        problems = [self._explained(one) for one in (*unread, *report.problems)]
        problems.sort(key=lambda one: one.location.sort_key)
        return replace(report, problems=tuple(problems))

    def _kept(self, contents: Iterator[Content]) -> Iterator[Content]:
        for name, data in contents:
            if isinstance(data, bytes):
                self._positions.files[name] = data
            yield name, data

    def _entry(self, manifest: Manifest) -> Entry:
        one = manifest_object(manifest.object, self._namespace, field=manifest.field)
        for name, value in (("name", one.name), ("namespace", one.namespace)):
            if _TEMPLATE.search(value):
                path = child(child(manifest.field, "metadata"), name)
                raise InvalidFieldError(path, f"{value!r}: {_NOT_RENDERED}")
        entry = Entry(one, manifest.document)
        if one.is_named:
            first = self._first.setdefault((one.resource, one.namespace, one.name), entry)
            if first is not entry:
                return replace(entry, earlier=first)
        self.overlay.add(one)
        return entry

    def _problem(self, err: SnapshotError) -> Problem:
        err = located(err, self._positions.files.get(err.file, b""))
        line, column = err.place.line or 1, err.place.column or 1
        return Problem(Location(err.file, line, column, err.field), err.detail)

    def _explained(self, problem: Problem) -> Problem:
        """Return a problem, with what is probably meant by the parser's words."""
        place = problem.location
        if Path(place.file).name in _CHART_FILES:
            return Problem(place, f"{problem.text}; {_CHART}")
        if _NOT_RENDERED in problem.text or not any(
            map(_DIRECTIVE.search, self._lines(problem.location.file))
        ):
            return problem
        return Problem(problem.location, f"{problem.text}; {_NOT_RENDERED}")

    def _lines(self, file: str) -> list[str]:
        data = self._positions.files.get(file, b"")
        return data.decode("utf-8", errors="replace").split("\n")


def _template_path(text: str) -> TemplatePath:
    try:
        return TemplatePath.parse(text)
    except TemplatePathError as err:
        raise click.UsageError(f"--template-path {err}") from err


def _ignore(text: str) -> Ignore:
    rule, _, pattern = text.partition(":")
    if rule != "*" and rule not in set(Rule):
        rules = ", ".join(Rule)
        raise click.UsageError(f"--ignore {text}: there is no rule {rule!r}; rules are {rules}")
    return Ignore(rule, pattern or "*")


def _cluster(
    kubeconfig: Path | None, context: str | None, snapshots: tuple[Path, ...], *, is_live: bool
) -> AbstractContextManager[ClusterApi]:
    """Return the cluster that the manifests meet; an empty one where there is none."""
    return live_cluster(kubeconfig, context) if is_live else snapshot_reader(snapshots)


def _read_options(
    api: ClusterApi, config: Path | None, *, is_live: bool, is_known: bool
) -> ExplainOptions:
    place = system_namespace_of(api) if is_known else DEFAULT_NAMESPACE
    configuration = Configuration()
    taken = None
    if is_known or config is not None:
        # imported late: the engine is slow to import, and manifests alone need none of it
        from webhook.cli.files.configuration import configuration_of  # noqa: PLC0415
        from webhook.fakecluster.manifests.snapshot_client import SnapshotClient  # noqa: PLC0415

        configuration = configuration_of(api, config, place)
        taken = api.extent.taken if isinstance(api, SnapshotClient) else None
    return ExplainOptions(configuration, place, is_offline=not is_live, taken=taken, probes=False)


def _exit_code(report: Report, least: FailOn) -> ExitCode:
    if report.problems:
        return ExitCode.BAD_INPUT
    found = {one.finding.severity for one in report.findings} & _LEAST[least]
    if found == {Severity.INFO}:
        return ExitCode.DRIFT
    return ExitCode.FINDINGS if found else ExitCode.OK
