"""Pods: gates, binding, resizing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import a_binding, a_container, a_pod
from tests.kube.builders import (
    entries,
    first,
    mapping,
    meta,
)
from tests.kube.contract.base import GATE, SOON, ClusterContract, run_together
from webhook.kube.api import (
    POD_DISRUPTION_BUDGETS,
    PODS,
    ClusterApi,
    ConflictError,
    InvalidError,
    ListOptions,
    NotFoundError,
    Revision,
    TooManyRequestsError,
)


class PodContract(ClusterContract):
    @pytest.fixture
    def gated(self, api: ClusterApi, namespace: str) -> Revision:
        """A pod with one scheduling gate."""
        return api.create(PODS, a_pod(namespace=namespace, schedulingGates=[GATE]))

    def test_a_gated_pod_says_so(self, gated: Revision) -> None:
        condition = entries(gated.object, "status", "conditions")[0]
        assert isinstance(condition, dict)
        assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
        assert condition["reason"] == "SchedulingGated"
        text = "Scheduling is blocked due to non-empty scheduling gates"
        assert condition["message"] == text

    def test_a_new_pod_is_pending_whatever_was_sent(self, api: ClusterApi, namespace: str) -> None:
        sent = a_pod(namespace=namespace, status={"phase": "Running", "hostIP": "10.0.0.1"})
        status = mapping(api.create(PODS, sent).object, "status")
        assert status["phase"] == "Pending"
        assert "hostIP" not in status

    def test_a_qos_class_that_was_sent_stays(self, api: ClusterApi, namespace: str) -> None:
        created = api.create(PODS, a_pod(namespace=namespace, status={"qosClass": "BestEffort"}))
        assert mapping(created.object, "status")["qosClass"] == "BestEffort"

    def test_a_gated_pod_cannot_be_created_on_a_node(self, api: ClusterApi, namespace: str) -> None:
        sent = a_pod(namespace=namespace, node="n1", schedulingGates=[GATE])
        with pytest.raises(
            InvalidError,
            match=r"spec\.nodeName: Forbidden: cannot be set until all schedulingGates have been",
        ):
            api.create(PODS, sent)

    def test_gates_can_be_removed(self, api: ClusterApi, namespace: str, gated: Revision) -> None:
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": gated.uid},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ]
        freed = api.patch(PODS, "web-1", patch, namespace=namespace)
        assert not mapping(freed.object, "spec").get("schedulingGates")
        assert meta(freed.object)["generation"] == 2

    def test_gates_cannot_be_added(self, api: ClusterApi, namespace: str, pod: Revision) -> None:
        del pod
        patch = {"spec": {"schedulingGates": [{"name": "example.com/late"}]}}
        with pytest.raises(
            InvalidError,
            match=r"spec\.schedulingGates\[0\]\.name: Forbidden: only deletion is allowed, but "
            "found new scheduling gate 'example.com/late'",
        ):
            api.patch(PODS, "web-1", patch, namespace=namespace)

    @pytest.mark.parametrize(
        "spec",
        [{"nodeName": "n1"}, {"priorityClassName": "gold"}, {"containers": [a_container("b")]}],
        ids=["node", "priority class", "another container"],
    )
    def test_an_update_cannot_change_the_spec(
        self, api: ClusterApi, namespace: str, pod: Revision, spec: dict[str, object]
    ) -> None:
        del pod
        with pytest.raises(InvalidError, match="pod updates may not change fields other than"):
            api.patch(PODS, "web-1", {"spec": spec}, namespace=namespace)

    def test_a_deadline_and_an_image_may_change(self, api: ClusterApi, pod: Revision) -> None:
        sent = {**pod.object, "spec": {**mapping(pod.object, "spec"), "activeDeadlineSeconds": 9}}
        container = entries(sent, "spec", "containers")[0]
        assert isinstance(container, dict)
        container["image"] = "registry.example/app:2"
        written = api.update(PODS, sent)
        assert mapping(written.object, "spec")["activeDeadlineSeconds"] == 9
        assert "app:2" in str(written.object)

    def test_placement_may_change_only_while_a_pod_is_gated(
        self, api: ClusterApi, namespace: str, gated: Revision
    ) -> None:
        patch = {"spec": {"nodeSelector": {"disk": "fast"}}}
        chosen = api.patch(PODS, "web-1", patch, namespace=namespace)
        assert mapping(chosen.object, "spec")["nodeSelector"] == {"disk": "fast"}
        assert chosen.uid == gated.uid
        api.create(PODS, a_pod(name="free", namespace=namespace))
        with pytest.raises(InvalidError, match="pod updates may not change fields other than"):
            api.patch(PODS, "free", patch, namespace=namespace)

    def test_a_resize_changes_resources_and_nothing_else(
        self, api: ClusterApi, namespace: str, pod: Revision
    ) -> None:
        container = a_container(requests={"cpu": "3"}, image="another")
        patch = [
            {"op": "replace", "path": "/spec/containers/0", "value": container},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        ]
        resized = api.patch(PODS, "web-1", patch, namespace=namespace, subresource="resize")
        found = entries(resized.object, "spec", "containers")[0]
        before = entries(pod.object, "spec", "containers")[0]
        assert isinstance(found, dict)
        assert isinstance(before, dict)
        assert found["resources"]["requests"] == {"cpu": "3"}
        assert found["image"] == before["image"]
        assert meta(resized.object)["generation"] == 2

    def test_a_resize_by_update_is_the_same(
        self, api: ClusterApi, namespace: str, pod: Revision
    ) -> None:
        sent = {**pod.object, "spec": a_pod(requests={"cpu": "3"})["spec"]}
        resized = api.update(PODS, sent, subresource="resize")
        assert "'cpu': '3'" in str(entries(resized.object, "spec", "containers"))
        assert api.get(PODS, "web-1", namespace=namespace) == resized.object

    def test_a_resize_may_change_the_resources_of_the_pod(
        self, api: ClusterApi, namespace: str
    ) -> None:
        resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
        api.create(PODS, a_pod(namespace=namespace, resources=resources))
        patch = [{"op": "replace", "path": "/spec/resources/limits/cpu", "value": "3"}]
        resized = api.patch(PODS, "web-1", patch, namespace=namespace, subresource="resize")
        assert mapping(resized.object, "spec", "resources", "limits") == {"cpu": "3"}

    @pytest.mark.parametrize(
        "change",
        [
            {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]},
            {"resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}},
        ],
        ids=["policy", "storage"],
    )
    def test_a_resize_changes_cpu_and_memory_only(
        self, api: ClusterApi, namespace: str, pod: Revision, change: dict[str, object]
    ) -> None:
        del pod
        patch = {"spec": {"containers": [{**a_container(requests={"cpu": "1"}), **change}]}}
        with pytest.raises(InvalidError, match="spec: Forbidden: only cpu and memory resources"):
            api.patch(PODS, "web-1", patch, namespace=namespace, subresource="resize")

    def test_a_resize_adds_no_container(
        self, api: ClusterApi, namespace: str, pod: Revision
    ) -> None:
        del pod
        added = {"op": "add", "path": "/spec/containers/-", "value": a_container("b")}
        with pytest.raises(InvalidError, match=r"spec\.containers"):
            api.patch(PODS, "web-1", [added], namespace=namespace, subresource="resize")

    def test_a_status_update_keeps_the_owners(self, api: ClusterApi, namespace: str) -> None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid"}
        pod = api.create(PODS, a_pod(namespace=namespace, metadata={"ownerReferences": [owner]}))
        metadata = {**meta(pod.object), "ownerReferences": [], "labels": {"a": "b"}}
        written = api.update_status(
            PODS, {**pod.object, "metadata": metadata, "status": {"phase": "Running"}}
        )
        assert meta(written.object)["ownerReferences"] == [owner]
        assert meta(written.object)["labels"] == {"a": "b"}

    def test_a_status_update_keeps_spec_and_qos_class(
        self, api: ClusterApi, namespace: str
    ) -> None:
        pod = api.create(PODS, a_pod(namespace=namespace, status={"qosClass": "Burstable"}))
        sent = {**pod.object, "spec": {}, "status": {"phase": "Running"}}
        written = api.update_status(PODS, sent)
        assert mapping(written.object, "status") == {"phase": "Running", "qosClass": "Burstable"}
        assert written.object["spec"] == pod.object["spec"]


class BindContract(ClusterContract):
    def test_a_bind_is_one_write_with_labels_and_annotations(
        self, api: ClusterApi, namespace: str, pod: Revision
    ) -> None:
        binding = a_binding(namespace=namespace, uid=pod.uid, annotations={"example.com/a": "b"})
        mapping(binding, "metadata")["labels"] = {"zone": "z1"}
        with api.watch(
            PODS,
            ListOptions(namespace=namespace),
            resource_version=pod.resource_version,
            timeout_seconds=SOON,
        ) as stream:
            api.bind(binding)
            event = first(stream, 1)[0]
        bound = api.get(PODS, "web-1", namespace=namespace)
        assert event.object == bound
        assert mapping(bound, "spec")["nodeName"] == "node-1"
        assert mapping(bound, "metadata", "annotations")["example.com/a"] == "b"
        assert mapping(bound, "metadata", "labels")["zone"] == "z1"
        conditions = entries(bound, "status", "conditions")
        assert [(c["type"], c["status"]) for c in conditions if isinstance(c, dict)] == [
            ("PodScheduled", "True")
        ]

    def test_a_bind_without_uid_takes_the_pod_of_that_name(
        self, api: ClusterApi, namespace: str, pod: Revision
    ) -> None:
        del pod
        binding = a_binding(namespace=namespace)
        del mapping(binding, "metadata")["namespace"]
        api.bind(binding, namespace=namespace)
        assert mapping(api.get(PODS, "web-1", namespace=namespace), "spec")["nodeName"] == "node-1"

    def test_a_missing_pod_cannot_be_bound(self, api: ClusterApi, namespace: str) -> None:
        with pytest.raises(NotFoundError, match=r'^pods "web-1" not found$'):
            api.bind(a_binding(namespace=namespace))

    def test_a_gated_pod_cannot_be_bound(self, api: ClusterApi, namespace: str) -> None:
        api.create(PODS, a_pod(namespace=namespace, schedulingGates=[GATE]))
        self._refused(api, namespace, "pod web-1 has non-empty .spec.schedulingGates")

    def test_an_assigned_pod_cannot_be_bound_again(
        self, api: ClusterApi, namespace: str, pod: Revision
    ) -> None:
        del pod
        api.bind(a_binding(namespace=namespace, node="n1"))
        self._refused(api, namespace, 'pod web-1 is already assigned to node "n1"')

    def test_a_pod_that_is_being_deleted_cannot_be_bound(
        self, api: ClusterApi, namespace: str
    ) -> None:
        held = {"finalizers": ["example.com/hold"]}
        api.create(PODS, a_pod(namespace=namespace, metadata=held))
        api.delete(PODS, "web-1", namespace=namespace)
        self._refused(api, namespace, "pod web-1 is being deleted, cannot be assigned to a host")

    @staticmethod
    def _refused(api: ClusterApi, namespace: str, detail: str) -> None:
        with pytest.raises(ConflictError) as refusal:
            api.bind(a_binding(namespace=namespace))
        expected = f'Operation cannot be fulfilled on pods/binding "web-1": {detail}'
        assert refusal.value.message == expected
        assert refusal.value.details == {"name": "web-1", "kind": "pods/binding"}

    def test_a_bind_means_one_uid(self, api: ClusterApi, namespace: str, pod: Revision) -> None:
        with pytest.raises(ConflictError, match="Precondition failed: UID in precondition: wrong,"):
            api.bind(a_binding(namespace=namespace, uid="wrong"))
        assert api.get(PODS, "web-1", namespace=namespace) == pod.object

    def test_a_bind_can_mean_one_version(
        self, api: ClusterApi, namespace: str, pod: Revision
    ) -> None:
        changed = api.patch(
            PODS, "web-1", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace
        )
        binding = a_binding(namespace=namespace)
        mapping(binding, "metadata")["resourceVersion"] = str(pod.resource_version)
        with pytest.raises(ConflictError, match="ResourceVersion in precondition"):
            api.bind(binding)
        mapping(binding, "metadata")["resourceVersion"] = str(changed.resource_version)
        api.bind(binding)

    def test_a_dry_run_binds_nothing(self, api: ClusterApi, namespace: str, pod: Revision) -> None:
        api.bind(a_binding(namespace=namespace), dry_run=True)
        assert api.get(PODS, "web-1", namespace=namespace) == pod.object

    def test_of_many_binds_one_wins(self, api: ClusterApi, namespace: str, pod: Revision) -> None:
        del pod
        won: list[str] = []

        def binder(node: str) -> Callable[[], None]:
            def bind() -> None:
                try:
                    api.bind(a_binding(namespace=namespace, node=node))
                except ConflictError:
                    return
                won.append(node)

            return bind

        run_together(*[binder(f"n{number}") for number in range(6)])
        assert won == [mapping(api.get(PODS, "web-1", namespace=namespace), "spec")["nodeName"]]


class EvictContract(ClusterContract):
    @pytest.fixture
    def running(self, api: ClusterApi, namespace: str) -> Revision:
        """A pod that runs on a node."""
        labels = {"labels": {"app": "web"}}
        pod = a_pod(namespace=namespace, metadata=labels, terminationGracePeriodSeconds=30)
        made = api.create(PODS, pod)
        api.bind(a_binding(namespace=namespace, uid=made.uid))
        status = {"status": {"phase": "Running"}}
        return api.patch(PODS, "web-1", status, namespace=namespace, subresource="status")

    def test_a_pod_that_is_evicted_ends(
        self, api: ClusterApi, namespace: str, running: Revision
    ) -> None:
        api.evict("web-1", namespace=namespace, uid=running.uid, dry_run=True)
        assert "deletionTimestamp" not in meta(api.get(PODS, "web-1", namespace=namespace))
        api.evict("web-1", namespace=namespace, uid=running.uid)
        assert "deletionTimestamp" in meta(api.get(PODS, "web-1", namespace=namespace))

    def test_a_pod_that_is_being_deleted_can_be_hurried(
        self, api: ClusterApi, namespace: str, running: Revision
    ) -> None:
        def grace() -> object:
            return meta(api.get(PODS, "web-1", namespace=namespace))["deletionGracePeriodSeconds"]

        api.delete(PODS, "web-1", namespace=namespace, grace_period_seconds=1000)
        for asked, expected in ((2000, 1000), (100, 100), (None, 100)):
            api.evict("web-1", namespace=namespace, uid=running.uid, grace_seconds=asked)
            assert grace() == expected

    def test_only_the_very_pod_is_evicted(
        self, api: ClusterApi, namespace: str, running: Revision
    ) -> None:
        del running
        with pytest.raises(ConflictError, match=r"(?i)uid"):
            api.evict("web-1", namespace=namespace, uid="another")
        assert "deletionTimestamp" not in meta(api.get(PODS, "web-1", namespace=namespace))
        with pytest.raises(NotFoundError, match=r'^pods "web-2" not found$'):
            api.evict("web-2", namespace=namespace, uid="another")

    def test_a_disruption_budget_is_obeyed(
        self, api: ClusterApi, namespace: str, running: Revision
    ) -> None:
        budget = {
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        api.create(POD_DISRUPTION_BUDGETS, budget)
        with pytest.raises(TooManyRequestsError, match="Cannot evict pod"):
            api.evict("web-1", namespace=namespace, uid=running.uid)
        assert "deletionTimestamp" not in meta(api.get(PODS, "web-1", namespace=namespace))
