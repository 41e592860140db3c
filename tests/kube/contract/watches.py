"""Watching."""

from __future__ import annotations

import threading

import pytest

from tests.builders import a_binding, a_pod
from tests.kube.builders import (
    a_config_map,
    first,
    lines,
    mapping,
    meta,
)
from tests.kube.contract.base import SOON, ClusterContract, run_together
from webhook.kube.api import CONFIG_MAPS, PODS, ClusterApi, ListOptions, Revision, WatchStream


class WatchContract(ClusterContract):
    @pytest.fixture
    def start(self, api: ClusterApi, namespace: str) -> int:
        """The version from which a watch sees what the test does."""
        return api.list(CONFIG_MAPS, ListOptions(namespace=namespace)).resource_version

    def test_a_watch_tells_every_change_in_order(
        self, api: ClusterApi, namespace: str, start: int
    ) -> None:
        api.create(CONFIG_MAPS, a_config_map("a", namespace=namespace))
        api.create(CONFIG_MAPS, a_config_map("b", namespace=namespace))
        with self._watch(api, namespace, start) as stream:
            seen = first(stream, 2)
            api.patch(CONFIG_MAPS, "a", {"data": {"x": "y"}}, namespace=namespace)
            api.delete(CONFIG_MAPS, "b", namespace=namespace)
            seen += first(stream, 2)
        keys = [f"{namespace}/{name}" for name in ("a", "b", "a", "b")]
        types = ["ADDED", "ADDED", "MODIFIED", "DELETED"]
        assert lines(seen) == list(zip(types, keys, strict=True))
        versions = [event.resource_version for event in seen]
        assert versions == sorted(set(versions))
        assert versions[0] > start
        for event in seen:
            assert meta(event.object)["resourceVersion"] == str(event.resource_version)
            assert meta(event.object)["uid"] == event.uid

    def test_a_watch_begins_after_its_version(
        self, api: ClusterApi, namespace: str, start: int
    ) -> None:
        del start
        one = api.create(CONFIG_MAPS, a_config_map("a", namespace=namespace))
        two = api.create(CONFIG_MAPS, a_config_map("b", namespace=namespace))
        with self._watch(api, namespace, one.resource_version) as stream:
            assert first(stream, 1)[0].uid == two.uid

    def test_a_watch_of_a_namespace_tells_nothing_of_others(
        self, api: ClusterApi, namespace: str, start: int
    ) -> None:
        api.create(CONFIG_MAPS, a_config_map("far", namespace="default"))
        api.create(CONFIG_MAPS, a_config_map("near", namespace=namespace))
        with self._watch(api, namespace, start) as stream:
            assert lines(first(stream, 1)) == [("ADDED", f"{namespace}/near")]

    def test_a_deleted_object_is_shown_as_it_last_was(
        self, api: ClusterApi, namespace: str, start: int, notes: Revision
    ) -> None:
        api.delete(CONFIG_MAPS, "notes", namespace=namespace)
        with self._watch(api, namespace, start) as stream:
            gone = first(stream, 2)[1]
        assert (gone.type, gone.uid) == ("DELETED", notes.uid)
        assert mapping(gone.object, "data") == {"text": "one"}
        assert gone.resource_version > notes.resource_version

    def test_a_selector_decides_what_is_added_and_deleted(
        self, api: ClusterApi, namespace: str, start: int
    ) -> None:
        def label(value: str | None) -> None:
            patch = {"metadata": {"labels": {"app": value}}}
            api.patch(CONFIG_MAPS, "notes", patch, namespace=namespace)

        api.create(CONFIG_MAPS, a_config_map(namespace=namespace))
        label("web")
        api.patch(CONFIG_MAPS, "notes", {"data": {"a": "b"}}, namespace=namespace)
        label("other")
        label("web")
        api.delete(CONFIG_MAPS, "notes", namespace=namespace)
        with self._watch(api, namespace, start, label_selector="app=web") as stream:
            seen = first(stream, 5)
        types = [event.type for event in seen]
        assert types == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        labels = mapping(seen[2].object, "metadata", "labels")
        assert labels == {"app": "web"}

    def test_a_bound_pod_leaves_the_watch_of_pods_without_node(
        self, api: ClusterApi, namespace: str
    ) -> None:
        start = api.list(PODS, ListOptions(namespace=namespace)).resource_version
        api.create(PODS, a_pod(namespace=namespace))
        api.bind(a_binding(namespace=namespace))
        with api.watch(
            PODS,
            ListOptions(namespace=namespace, field_selector="spec.nodeName="),
            resource_version=start,
            timeout_seconds=SOON,
        ) as stream:
            assert [event.type for event in first(stream, 2)] == ["ADDED", "DELETED"]

    def test_a_dry_run_is_no_event(self, api: ClusterApi, namespace: str, start: int) -> None:
        api.create(CONFIG_MAPS, a_config_map("dry", namespace=namespace), dry_run=True)
        api.create(CONFIG_MAPS, a_config_map("real", namespace=namespace))
        with self._watch(api, namespace, start) as stream:
            assert lines(first(stream, 1)) == [("ADDED", f"{namespace}/real")]

    def test_a_write_that_changes_nothing_is_no_event(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        api.update(CONFIG_MAPS, notes.object)
        api.create(CONFIG_MAPS, a_config_map("next", namespace=namespace))
        with self._watch(api, namespace, notes.resource_version) as stream:
            assert lines(first(stream, 1)) == [("ADDED", f"{namespace}/next")]

    def test_a_watch_waits_for_what_comes(
        self, api: ClusterApi, namespace: str, start: int
    ) -> None:
        seen: list[str] = []

        def follow() -> None:
            with self._watch(api, namespace, start) as stream:
                seen.extend(event.key for event in first(stream, 1))

        def write() -> None:
            api.create(CONFIG_MAPS, a_config_map("late", namespace=namespace))

        run_together(follow, write)
        assert seen == [f"{namespace}/late"]

    def test_a_watch_ends_when_its_time_is_up(
        self, api: ClusterApi, namespace: str, start: int
    ) -> None:
        with api.watch(
            CONFIG_MAPS,
            ListOptions(namespace=namespace),
            resource_version=start,
            timeout_seconds=1,
            bookmarks=False,
        ) as stream:
            assert list(stream) == []

    def test_a_watch_can_be_closed_from_another_thread(
        self, api: ClusterApi, namespace: str, start: int
    ) -> None:
        stream = self._watch(api, namespace, start, timeout_seconds=60)
        seen: list[object] = []
        waiting = threading.Thread(target=lambda: seen.extend(stream))
        waiting.start()
        stream.close()
        waiting.join(SOON)
        assert not waiting.is_alive()
        assert seen == []

    def test_watches_do_not_take_events_from_each_other(
        self, api: ClusterApi, namespace: str, start: int
    ) -> None:
        seen: list[list[str]] = []

        def follow() -> None:
            with self._watch(api, namespace, start) as stream:
                seen.append([event.key for event in first(stream, 20)])

        def write() -> None:
            for number in range(20):
                api.create(CONFIG_MAPS, a_config_map(f"n{number}", namespace=namespace))

        run_together(follow, follow, write, follow)
        expected = [f"{namespace}/n{number}" for number in range(20)]
        assert seen == [expected] * 3

    @staticmethod
    def _watch(
        api: ClusterApi,
        namespace: str,
        start: int,
        *,
        label_selector: str = "",
        timeout_seconds: float = SOON,
    ) -> WatchStream:
        return api.watch(
            CONFIG_MAPS,
            ListOptions(namespace=namespace, label_selector=label_selector),
            resource_version=start,
            timeout_seconds=timeout_seconds,
            bookmarks=False,
        )
