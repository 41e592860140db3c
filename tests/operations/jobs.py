"""A cluster whose API server knows the rules of Jobs, and whose Job controller plays along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.builders import a_container, a_job, a_pod
from tests.operations.healthy import Pulse
from tests.operations.scenes import NAMESPACE, a_cluster, a_namespace
from tests.reactions import ReactiveClient
from webhook.fakecluster.storage import FakeClient
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import JOBS, ClusterApi, InvalidError
from webhook.kube.api import Object as ApiObject
from webhook.kube.errors import FieldCause
from webhook.operations.jobs.planning import Order
from webhook.operations.retry import RetryPolicy
from webhook.quota.amounts.resources import parse_resource_list
from webhook.quota.jobs import job_update_errors
from webhook.quota.jobs.resize_plan import DesiredResources

Object = dict[str, object]
PODS = 3
STARTED = "2026-06-01T12:00:00Z"


class JobRules:
    """The admission of an API server: its own rules for updates of Jobs."""

    def mutate(self, request: WriteRequest) -> ApiObject | None:
        return request.new

    def validate(self, request: WriteRequest) -> None:
        if request.kind != JOBS or request.operation != "UPDATE" or request.subresource:
            return
        errors = job_update_errors(request.old or {}, request.new or {})
        if errors:
            causes = [FieldCause(each.type, each.field, each.message) for each in errors]
            raise InvalidError.of(JOBS, request.name, causes)


class World:
    """One Job, `train`, of three pods with 4 cpu each, and its controller.

    Each pause lets the controller take one look: a suspended Job loses one pod at a time.

    Attributes:
        api: The client of what is tested; its writes pass the rules.
        platform: The client of the API server's own controllers, and of tests.
        events: What happens at each pause besides.
    """

    def __init__(self, *, runs: bool = True, **fields: Any) -> None:
        status = {"active": PODS, "startTime": STARTED} if runs else {}
        made = a_job(
            a_container(requests={"cpu": "4"}, limits={"memory": "8Gi"}),
            suspend=not runs,
            status=status,
            parallelism=PODS,
            **{"podReplacementPolicy": "Failed", **fields},
        )
        self.cluster = a_cluster(a_namespace(), made)
        self.api = ReactiveClient(self.cluster, admission=JobRules())
        self.platform = FakeClient(self.cluster, admission=JobRules())
        self.controls = True
        self.events: list[Callable[[], object]] = []
        self.pulse = Pulse(self.look)

    def patience(self, seconds: float = 60.0) -> RetryPolicy:
        return RetryPolicy(
            seconds=seconds,
            pause_seconds=1.0,
            settle_seconds=1.0,
            clock=self.pulse.clock,
            sleep=self.pulse.sleep,
        )

    def look(self) -> None:
        """Let the controller do what it does, and what a test wants to happen."""
        if self.events:
            self.events.pop(0)()
        if self.controls and self.platform.list(JOBS).items:
            self.set_status(**self._next_status())

    def _next_status(self) -> Object:
        active = cast("int", self.status.get("active", 0))
        if not self.spec["suspend"]:
            return {"active": PODS, "startTime": STARTED}
        condition = {"type": "Suspended", "status": "True"}
        return {"active": active - 1} if active > 0 else {"active": 0, "conditions": [condition]}

    def set_status(self, **status: object) -> None:
        whole = {"status": {"conditions": None, "startTime": None, **status}}
        self.platform.patch(JOBS, "train", whole, namespace=NAMESPACE, subresource="status")

    def change(self, **spec: object) -> None:
        """Change the Job as somebody else."""
        other = FakeClient(self.cluster)
        other.patch(JOBS, "train", {"spec": spec}, namespace=NAMESPACE)

    def annotate(self) -> None:
        """Write the Job, so that its version is another one."""
        text = str(self.cluster.resource_version)
        patch = {"metadata": {"annotations": {"touched": text}}}
        FakeClient(self.cluster).patch(JOBS, "train", patch, namespace=NAMESPACE)

    @property
    def job(self) -> ApiObject:
        return self.platform.get(JOBS, "train", namespace=NAMESPACE)

    @property
    def spec(self) -> Object:
        return cast("Object", self.job["spec"])

    @property
    def status(self) -> Object:
        return cast("Object", self.job.get("status") or {})

    @property
    def resources(self) -> Mapping[str, object]:
        """The resources of the only container."""
        return cast("Object", self._container["resources"])

    @property
    def is_old(self) -> bool:
        """Whether it runs, and with the old resources."""
        return not self.spec["suspend"] and self.resources == OLD

    @property
    def is_new(self) -> bool:
        """Whether it runs, and with the new resources."""
        return not self.spec["suspend"] and self.resources == NEW

    @property
    def _container(self) -> Object:
        template = cast("Object", self.spec["template"])
        containers = cast("Object", template["spec"])["containers"]
        return cast("list[Object]", containers)[0]


OLD = {"requests": {"cpu": "4"}, "limits": {"memory": "8Gi"}}
NEW = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}}


def wanted(
    requests: Mapping[str, str], limits: Mapping[str, str] | None = None
) -> DesiredResources:
    return DesiredResources(
        parse_resource_list(requests, field="requests"),
        parse_resource_list(limits, field="limits"),
    )


def an_order(requests: Mapping[str, str] | None = None, *, stays_suspended: bool = False) -> Order:
    """An order for `train`, to become smaller unless `requests` say otherwise."""
    amounts = requests or {"cpu": "2", "memory": "4Gi"}
    return Order(NAMESPACE, "train", {"main": wanted(amounts)}, stays_suspended)


def version_of(api: ClusterApi) -> object:
    metadata = api.get(JOBS, "train", namespace=NAMESPACE)["metadata"]
    return cast("Object", metadata)["resourceVersion"]


def a_pod_of_the_job(name: str, phase: str = "Running", owner: str = "job-uid-1") -> Object:
    owners = [{"kind": "Job", "name": "train", "uid": owner, "controller": True}]
    return a_pod(
        name=name,
        uid=f"uid-{name}",
        metadata={"ownerReferences": owners},
        status={"phase": phase},
    )


def a_sample(pod: str, **containers: tuple[str, str]) -> Object:
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "PodMetrics",
        "metadata": {"name": pod, "namespace": NAMESPACE},
        "containers": [
            {"name": name, "usage": {"cpu": cpu, "memory": memory}}
            for name, (cpu, memory) in containers.items()
        ],
    }
