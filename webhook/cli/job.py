"""`deferred-quota job`: work on Jobs, whose pods cannot be changed while they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from webhook.cli.cluster_options import (
    RefusedError,
    live_cluster,
    namespace_of,
    progress,
    retried,
)
from webhook.cli.exit_codes import ExitCode, InputError, printable
from webhook.cli.files.configuration import configuration_of
from webhook.cli.printing.job_report import (
    Warnings,
    ending_of,
    interruptible,
    print_plan,
    print_resized,
)
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import CONFIG_MAPS, JOBS, ClusterApi, ForbiddenError, NotFoundError
from webhook.operations.deployments import system_namespace_of
from webhook.operations.jobs.planning import Order, ResizeRefusedError, check_on_server, plan_resize
from webhook.operations.jobs.resizing import ResizeFailedError, resize
from webhook.operations.jobs.rules import ClusterRules
from webhook.operations.jobs.usage import NoUsageError, usage_of_job, wanted_by_usage
from webhook.operations.retry import RetryPolicy
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.jobs.resize_plan import DesiredResources, container_names
from webhook.state.well_known import CONFIG_MAP


def run_resize(  # noqa: PLR0913, PLR0917 - one for each option
    name: str,
    namespace: str | None,
    requests: ResourceList | None,
    limits: ResourceList | None,
    container: str | None,
    percent: int | None,
    stay_suspended: bool,
    seconds: float,
    dry_run: bool,
    kubeconfig: Path | None,
    context: str | None,
    config: Path | None,
    output: str,
) -> ExitCode:
    """Change the resources of a Job: suspend it, wait until no pod is active, change, resume."""
    if requests is None and limits is None and percent is None:
        raise click.UsageError("nothing to change: give --requests, --limits or --from-usage")
    place = namespace_of(namespace, kubeconfig, context)
    warnings = Warnings()
    with live_cluster(kubeconfig, context, on_warning=warnings) as api:
        try:
            explicit = DesiredResources(requests or {}, limits or {})
            wanted = wanted_of(api, (place, name), explicit, container, percent)
            rules = rules_for(api, config)
            order = Order(place, name, wanted, stays_suspended=stay_suspended, rules=rules)
            if dry_run:
                return check_on(api, order, output=output, heard=warnings.texts)
            patience = RetryPolicy(seconds=seconds, report=retried)
            return resize_on(api, order, patience, output=output, heard=warnings.texts)
        except InvalidFieldError as err:
            raise InputError(f"job {place}/{name}: {err}") from err
        except (ResizeRefusedError, NoUsageError) as err:
            problems = err.problems if isinstance(err, ResizeRefusedError) else str(err)
            raise RefusedError(problems) from err


def rules_for(api: ClusterApi, config: Path | None) -> ClusterRules:
    """Return the rules of the cluster for Jobs, of a file or as they are installed.

    Raises:
        InputError: The file cannot be used; the text has the field.
        ApiError: The cluster does not answer.
    """
    from webhook.policy import compile_policy  # noqa: PLC0415 - help must not wait for it

    about = "rules of the cluster for Jobs"
    try:
        place = system_namespace_of(api)
        if config is None:  # which counts as none where it may not be read
            api.get(CONFIG_MAPS, CONFIG_MAP, namespace=place)
        rules = compile_policy(configuration_of(api, config, place), system_namespace=place)
    except NotFoundError:
        return ClusterRules()
    except ForbiddenError as err:
        return ClusterRules(unread=f"{about}: {err.message}")
    except InputError as err:
        if config is not None:
            raise
        return ClusterRules(unread=f"{about}: {err.message}")
    return ClusterRules(rules.jobs, rules.exempt_namespaces)


def check_on(api: ClusterApi, order: Order, *, output: str, heard: Sequence[str] = ()) -> ExitCode:
    """Print what a resize would do, after the API server has checked it."""
    plan = plan_resize(api, order)
    checked = check_on_server(api, plan) if plan.changes else ""
    print_plan(plan, checked, output, heard)
    return ExitCode.OK


def resize_on(
    api: ClusterApi, order: Order, patience: RetryPolicy, *, output: str, heard: Sequence[str] = ()
) -> ExitCode:
    """Resize a Job of a cluster and print what was done."""
    try:
        with interruptible():
            done = resize(api, order, report=progress, patience=patience)
    except ResizeFailedError as err:
        return ending_of(err)
    print_resized(done, output, heard)
    return ExitCode.FINDINGS if done.problems else ExitCode.OK


def wanted_of(
    api: ClusterApi,
    place: tuple[str, str],
    explicit: DesiredResources,
    container: str | None,
    percent: int | None,
) -> Mapping[str, DesiredResources]:
    """Find out which containers are meant, and what each is to have.

    Args:
        place: Namespace and name of the Job.
        explicit: The amounts that were given; they go before what is measured.
        container: The container that was named, if one was.
        percent: The percentile of the usage, if it is asked for.

    Raises:
        InvalidFieldError: It is not clear which container is meant.
        NoUsageError: There is no usage to go by.
    """
    namespace, name = place
    names = container_names(api.get(JOBS, name, namespace=namespace))
    has_amounts = bool(explicit.requests or explicit.limits)
    if container is None and has_amounts and len(names) != 1:
        there = ", ".join(names) or "none"
        field = "spec.template.spec.containers"
        raise InvalidFieldError(field, f"has {there}: choose one with --container")
    chosen = container or (names[0] if has_amounts else None)
    if percent is None:
        return {str(chosen): explicit}
    usage = usage_of_job(api, namespace, name)
    if usage.sampled < usage.pods:
        words = f"metrics.k8s.io has samples of {usage.sampled} of {usage.pods} pods"
        click.echo(printable(f"job {namespace}/{name}: {words}"), err=True)
    measured = wanted_by_usage(usage, percent)
    if chosen is None:
        return {each: wanted for each, wanted in measured.items() if each in names}
    if chosen not in measured:
        raise NoUsageError(f"job {namespace}/{name}: metrics.k8s.io has no sample of {chosen!r}")
    requests = {**measured[chosen].requests, **explicit.requests}
    return {chosen: DesiredResources(requests, explicit.limits)}
