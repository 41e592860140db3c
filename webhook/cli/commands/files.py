"""Options and help of the commands about files: `review`, `usage`, `convert`.

Nothing is imported here that a body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import (
    Command,
    config_option,
    filename_option,
    namespace_option,
    output_option,
)

if TYPE_CHECKING:
    from webhook.quota.amounts.quantity import Quantity


class NodeMemory(click.ParamType["Quantity"]):
    """Memory of a node, more than nothing."""

    name = "quantity"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Quantity:
        """Read the quantity."""
        from webhook.quota.amounts.quantity import InvalidQuantityError, Quantity  # noqa: PLC0415

        try:
            memory = Quantity.parse(value)
        except InvalidQuantityError as err:
            self.fail(str(err), param, ctx)
        if memory.value <= 0:
            self.fail(f"{value!r} must be greater than 0", param, ctx)
        return memory


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota review --snapshot cluster.yaml < review.json
  deferred-quota review --snapshot cluster.yaml --phase mutate review.json
  deferred-quota review --snapshot cluster.yaml --jsonl reviews.jsonl > answers.jsonl
  kubectl get ns,quota,pods -A -o yaml > cluster.yaml   # add cdq if its CRD is installed

\b
Exit status:
  0  all requests were allowed
  1  a request was denied
  2  unreadable input
""",
)
@click.argument("file", default="-")
@click.option(
    "--snapshot",
    "snapshots",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="File with the objects of the cluster, as kubectl prints them. Repeatable.",
)
@click.option("--jsonl", is_flag=True, help="Read one AdmissionReview per line.")
@click.option(
    "--phase",
    type=click.Choice(("validate", "mutate")),
    default="validate",
    show_default=True,
    help="Webhook that answers.",
)
@config_option
def review(**options: Any) -> ExitCode:
    """Answer AdmissionReviews from a file, for a snapshot of a cluster.

    Reads one AdmissionReview from FILE (default: standard input), or one per line with --jsonl.
    Prints each answer on one line. Reviews are answered in order, on one ledger: a reservation
    for one counts for the next.

    A namespace without a Namespace object in the snapshot counts as opted in.
    """
    from webhook.cli.files.reviews import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota usage -f deployment.yaml
  deferred-quota usage -f deploy/ -R -n team-a
  kubectl get pods -n team-a -o yaml | deferred-quota usage -f -
  kustomize build . | deferred-quota usage -f - -o json
  deferred-quota usage -f deployment.yaml --node-memory 64Gi

\b
Exit status:
  0  success
  2  unreadable input
""",
)
@filename_option
@namespace_option("Namespace of objects without metadata.namespace.", "default")
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Number of nodes that each DaemonSet runs on.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file. Used: deferredResources and terminatingPods. Default: built-in"
    " defaults.",
)
@click.option(
    "--node-memory",
    type=NodeMemory(),
    metavar="QUANTITY",
    help="Also show what a kubelet sets for each container on a node with this memory: QoS class,"
    " oom_score_adj and cpu.weight.",
)
@output_option("text", "json")
def usage(**options: Any) -> None:
    """Show the quota usage of pods in manifests.

    Reads Pods and workloads with a pod template: Deployment, ReplicaSet, StatefulSet, DaemonSet,
    Job (the pods that run at once), CronJob (one run), ReplicationController, PodTemplate. Applies
    the defaults of the API server, but none of LimitRanges or RuntimeClasses.

    Prints for each object the usage per pod and in total, and whether it is charged at creation or
    at the bind. Text output has requests.cpu, but not its alias cpu; the same for memory,
    ephemeral-storage and hugepages-*. If any input is unreadable, only errors are printed.
    """
    from webhook.cli.files.usage import run  # noqa: PLC0415 - help must not wait for it

    run(**options)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota convert -f quotas.yaml > converted.yaml
  deferred-quota convert -f quotas/ -R -o json
  kustomize build . | deferred-quota convert -f - | kubectl apply -f -

\b
Exit status:
  0  success
  2  unreadable input, or a quota that cannot be converted
""",
)
@filename_option
@output_option("yaml", "json")
def convert(**options: Any) -> None:
    """Convert quotas of AAQ, OpenShift and scheduler-plugins.

    Reads manifests and prints them with these quotas converted:

    \b
      ApplicationAwareResourceQuota         -> ResourceQuota
      ApplicationAwareClusterResourceQuota  -> ClusterDeferredQuota
      ClusterResourceQuota (OpenShift)      -> ClusterDeferredQuota
      ElasticQuota (scheduling.x-k8s.io)    -> ElasticQuota (nos.nebuly.com)
      spec.priorityClassNameList            -> spec.scopeSelector

    Fields without a counterpart, or with another meaning, give warnings or errors.

    spec.priorityClassNameList is a field of ResourceQuota in a proposal of 2017. Names in it become
    PriorityClass In, "*" becomes PriorityClass Exists. A ResourceQuota without it is not changed:
    in the proposal it applied to pods without a class, now it applies to all pods. If another quota
    in the input has the field, a warning says so.

    Other documents are printed unchanged. Converted documents keep comments, order and quotes, and
    JSON stays JSON. A document is only written anew if an anchor refers to a changed value, or if
    it cannot be joined with other files as it is, such as JSON with escapes that YAML lacks. With
    -o json, all documents are printed as JSON. If any input is unreadable, only errors are printed.
    """  # noqa: D301 - click reads the backspace
    from webhook.cli.files.convert import run  # noqa: PLC0415 - help must not wait for it

    run(**options)
