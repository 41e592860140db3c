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
  kubectl get ns,quota,pods -A -o yaml > cluster.yaml   # and cdq, once it is installed

Exit status: 0 all allowed, 1 something was refused, 2 something could not be read.
""",
)
@click.argument("file", default="-")
@click.option(
    "--snapshot",
    "snapshots",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="The cluster to decide on: objects as kubectl prints them. Repeatable.",
)
@click.option("--jsonl", is_flag=True, help="FILE has one review in each line.")
@click.option(
    "--phase",
    type=click.Choice(("validate", "mutate")),
    default="validate",
    show_default=True,
    help="Which of the two webhooks is asked.",
)
@config_option
def review(**options: Any) -> ExitCode:
    """Answer the AdmissionReview in FILE (default: standard input) on a snapshot of a cluster.

    Reviews are answered in their order on one ledger, as a server would: what one reserves the
    next one finds taken.

    A namespace that the snapshot mentions without holding its Namespace object counts as one
    that has opted in.
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
Exit status: 0 shown, 2 something could not be read.
""",
)
@filename_option
@namespace_option("Namespace of objects that do not name one.", "default")
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How many nodes run the pod of a DaemonSet.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration: further deferred resources, and how terminating pods are charged.",
)
@click.option(
    "--node-memory",
    type=NodeMemory(),
    metavar="QUANTITY",
    help="Show too what the kubelet of a node with this memory sets for each container: QoS class,"
    " oom_score_adj, and cpu.weight of the cgroup.",
)
@output_option("text", "json")
def usage(**options: Any) -> None:
    """Show what the pods of manifests are charged under a ResourceQuota.

    Reads Pods and everything with a pod template: Deployment, ReplicaSet, StatefulSet, DaemonSet,
    Job (as many pods as run at once), CronJob (one run), ReplicationController, PodTemplate. What
    the API server would fill in is filled in, except what a LimitRange or a RuntimeClass adds.

    The text leaves out cpu, memory, ephemeral-storage and hugepages-*: a quota charges them as
    their `requests.` forms. If any input is unreadable, nothing is printed but the reasons.
    """
    from webhook.cli.files.usage import run  # noqa: PLC0415 - help must not wait for it

    run(**options)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota convert -f quotas.yaml > today.yaml
  deferred-quota convert -f quotas/ -R -o json
  kustomize build . | deferred-quota convert -f - | kubectl apply -f -

\b
Exit status: 0 converted, 2 something could not be read or converted.
""",
)
@filename_option
@output_option("yaml", "json")
def convert(**options: Any) -> None:
    """Convert quotas of the proposal of 2017, of AAQ, OpenShift and the scheduler's plugins.

    An ApplicationAwareResourceQuota becomes a ResourceQuota; an
    ApplicationAwareClusterResourceQuota, and a ClusterResourceQuota of OpenShift, become a
    ClusterDeferredQuota; an ElasticQuota of scheduling.x-k8s.io becomes one of nos.nebuly.com. What
    has no counterpart, or means another thing, is named, or is an error.

    The proposal "Priority in ResourceQuota" of 2017 gave a quota spec.priorityClassNameList.
    Names become PriorityClass In, and a list with "*" becomes PriorityClass Exists. Without a list
    the proposal meant pods without a class, and a quota of today means all pods: such a quota stays
    as it is, with a warning if other quotas of the input have lists.

    All other documents are printed byte for byte. In those that are converted comments, order and
    quotes stay: a comment of a field that goes stays with what takes its place, or before the next
    field. Only where an anchor stands for what changes is a document written anew, below its
    comments; and of several files those that would mean something else as part of one, as JSON with
    escapes that YAML does not know. A document of a JSON file stays JSON. With -o json all are
    printed as JSON, one after another. If any input is unreadable, nothing is printed but the
    reasons.
    """
    from webhook.cli.files.convert import run  # noqa: PLC0415 - help must not wait for it

    run(**options)
