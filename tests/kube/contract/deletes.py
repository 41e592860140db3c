"""Deleting: at once, after a grace period, when finalizers are gone."""

from __future__ import annotations

import pytest

from tests.builders import a_pod
from tests.kube.builders import (
    a_config_map,
    meta,
)
from tests.kube.contract.base import ClusterContract
from webhook.kube.api import (
    CONFIG_MAPS,
    PODS,
    ClusterApi,
    ConflictError,
    NotFoundError,
    Preconditions,
    Revision,
)


class DeleteContract(ClusterContract):
    def test_a_deleted_object_is_gone(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        api.delete(
            CONFIG_MAPS, "notes", namespace=namespace, preconditions=Preconditions(notes.uid)
        )
        with pytest.raises(NotFoundError):
            api.get(CONFIG_MAPS, "notes", namespace=namespace)
        with pytest.raises(NotFoundError):
            api.delete(CONFIG_MAPS, "notes", namespace=namespace)

    def test_a_deletion_means_one_uid(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        with pytest.raises(ConflictError, match="deleted and then recreated"):
            api.delete(
                CONFIG_MAPS, "notes", namespace=namespace, preconditions=Preconditions("another")
            )
        assert api.get(CONFIG_MAPS, "notes", namespace=namespace) == notes.object

    def test_a_deletion_can_mean_one_version(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        newest = api.patch(CONFIG_MAPS, "notes", {"data": {"a": "b"}}, namespace=namespace)
        with pytest.raises(ConflictError, match="might have been modified"):
            api.delete(
                CONFIG_MAPS,
                "notes",
                namespace=namespace,
                preconditions=Preconditions("", notes.resource_version),
            )
        api.delete(
            CONFIG_MAPS,
            "notes",
            namespace=namespace,
            preconditions=Preconditions("", newest.resource_version),
        )

    def test_an_object_of_the_same_name_is_another_one(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        api.delete(CONFIG_MAPS, "notes", namespace=namespace)
        again = api.create(CONFIG_MAPS, a_config_map(namespace=namespace))
        assert again.uid != notes.uid
        with pytest.raises(ConflictError):
            api.update(CONFIG_MAPS, notes.object)

    def test_finalizers_hold_an_object(self, api: ClusterApi, namespace: str) -> None:
        metadata = {"finalizers": ["example.com/hold"]}
        api.create(CONFIG_MAPS, a_config_map(namespace=namespace, metadata=metadata))
        for _ in range(2):
            api.delete(CONFIG_MAPS, "notes", namespace=namespace)
        held = api.get(CONFIG_MAPS, "notes", namespace=namespace)
        assert "deletionTimestamp" in meta(held)
        api.patch(CONFIG_MAPS, "notes", {"metadata": {"finalizers": None}}, namespace=namespace)
        with pytest.raises(NotFoundError):
            api.get(CONFIG_MAPS, "notes", namespace=namespace)

    def test_a_dry_run_deletes_nothing(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        api.delete(CONFIG_MAPS, "notes", namespace=namespace, dry_run=True)
        assert api.get(CONFIG_MAPS, "notes", namespace=namespace) == notes.object

    def test_a_pod_without_node_goes_at_once(
        self, api: ClusterApi, namespace: str, pod: Revision
    ) -> None:
        api.delete(
            PODS,
            "web-1",
            namespace=namespace,
            preconditions=Preconditions(pod.uid),
            grace_period_seconds=30,
        )
        with pytest.raises(NotFoundError):
            api.get(PODS, "web-1", namespace=namespace)

    @pytest.fixture
    def running(self, api: ClusterApi, namespace: str) -> Revision:
        """A pod with a node, whose spec gives it 40 seconds to end."""
        sent = a_pod(namespace=namespace, node="n1", terminationGracePeriodSeconds=40)
        return api.create(PODS, sent)

    def test_a_pod_with_a_node_stays_until_it_is_deleted_without_grace(
        self, api: ClusterApi, namespace: str, running: Revision
    ) -> None:
        api.delete(PODS, "web-1", namespace=namespace, preconditions=Preconditions(running.uid))
        ending = meta(api.get(PODS, "web-1", namespace=namespace))
        assert ending["deletionGracePeriodSeconds"] == 40
        assert str(ending["deletionTimestamp"]) > str(ending["creationTimestamp"])
        api.delete(PODS, "web-1", namespace=namespace, grace_period_seconds=0)
        with pytest.raises(NotFoundError):
            api.get(PODS, "web-1", namespace=namespace)

    def test_a_grace_period_can_only_become_shorter(
        self, api: ClusterApi, namespace: str, running: Revision
    ) -> None:
        del running
        for asked, expected in ((20, 20), (30, 20), (None, 20), (5, 5), (-9, 1)):
            api.delete(PODS, "web-1", namespace=namespace, grace_period_seconds=asked)
            found = meta(api.get(PODS, "web-1", namespace=namespace))
            assert found["deletionGracePeriodSeconds"] == expected

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_a_pod_that_has_ended_goes_at_once(
        self, api: ClusterApi, namespace: str, running: Revision, phase: str
    ) -> None:
        api.update_status(PODS, {**running.object, "status": {"phase": phase}})
        api.delete(PODS, "web-1", namespace=namespace)
        with pytest.raises(NotFoundError):
            api.get(PODS, "web-1", namespace=namespace)
