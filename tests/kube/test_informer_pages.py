"""An informer takes long lists in page by page, and decodes as it is told."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.kube.builders import a_config_map, meta
from tests.kube.contract.base import SOON
from tests.kube.faults import Call, Fault, FaultyClient, in_turn
from tests.kube.test_informer import (
    AT_ONCE,
    Seen,
    Start,
    an_informer,
    api,
    cluster,
    next_changes,
    remove,
    rewrite,
    start,
    text_of,
    write,
)
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CONFIG_MAPS, ExpiredError, Object, Page
from webhook.kube.codec import decode_object
from webhook.kube.informer import Informer, InformerTimings

__all__ = ["api", "cluster", "start"]


class TestPages:
    """Long lists come in parts of 500."""

    MANY = 1203

    def fill(self, cluster: FakeCluster) -> None:
        names = (f"n{number:04}" for number in range(self.MANY))
        cluster.load((CONFIG_MAPS, a_config_map(name, text="one")) for name in names)

    def test_a_long_list_is_taken_in_whole(self, cluster: FakeCluster, start: Start) -> None:
        self.fill(cluster)
        flaky = FaultyClient(FakeClient(cluster))
        informer, _ = start(flaky)
        assert informer.wait_for_sync(SOON)
        assert len(informer) == self.MANY
        assert informer.relists == 1
        assert flaky.calls == 4  # three pages and the watch

    def test_what_is_still_listed_is_not_forgotten_meanwhile(
        self, cluster: FakeCluster, api: FakeClient, start: Start
    ) -> None:
        self.fill(cluster)
        flaky = FaultyClient(FakeClient(cluster))
        informer, seen = start(flaky)
        assert informer.wait_for_sync(SOON)
        next_changes(seen, self.MANY)
        sizes: list[int] = []
        flaky.before = lambda call: sizes.append(len(informer)) if call.verb == "continue" else None
        remove(api, "n0000")
        write(api, "new", "two")
        cluster.compact()
        cluster.cut_watches(ExpiredError("too old"))
        version = write(api, "newest", "three")
        assert informer.wait_for_version(version, SOON)
        assert min(sizes) >= self.MANY - 1
        assert sorted(informer.items()) == sorted(
            f"team-a/{meta(obj)['name']}" for obj in api.list(CONFIG_MAPS).items
        )

    def test_a_list_that_expires_in_the_middle_begins_again(self, cluster: FakeCluster) -> None:
        self.fill(cluster)
        flaky = FaultyClient(FakeClient(cluster), in_turn([Fault.EXPIRE], verb="continue"))
        synced: list[bool] = []
        flaky.before = lambda _: synced.append(informer.has_synced)
        informer = an_informer(flaky)
        seen: Seen = queue.Queue()
        informer.add_handler(seen.put)
        informer.start()
        assert informer.wait_for_sync(SOON)
        informer.stop()
        assert len(informer) == self.MANY
        assert not any(synced[:5])  # list, continue; list, continue, continue
        assert informer.relists == 1
        changes = next_changes(seen, self.MANY)
        assert seen.empty()
        assert {change[0] for change in changes} == {"ADDED"}

    def test_what_an_unfinished_list_showed_is_not_undone_by_an_older_one(
        self, cluster: FakeCluster, api: FakeClient, start: Start
    ) -> None:
        self.fill(cluster)
        flaky = FaultyClient(FakeClient(cluster))
        informer, seen = start(flaky)
        assert informer.wait_for_sync(SOON)
        next_changes(seen, self.MANY)
        rewrite(api, "n0000", "two")
        lists: list[Fault | None] = [None, Fault.STALE]
        more: list[Fault | None] = [Fault.FAIL_BEFORE]
        faults = {"list": lists, "continue": more}

        def plan(call: Call) -> Fault | None:
            left = faults.get(call.verb)
            return left.pop(0) if left else None

        flaky.plan = plan
        cluster.compact()
        cluster.cut_watches(ExpiredError("too old"))
        version = rewrite(api, "n0001", "three")
        assert informer.wait_for_version(version, SOON)
        told = [seen.get(timeout=SOON) for _ in range(2)]
        assert [(one.key, one.old, one.new) for one in told] == [
            ("team-a/n0000", "one", "two"),
            ("team-a/n0001", "one", "three"),
        ]
        assert seen.empty()

    def test_pages_of_different_moments_are_no_list(
        self, cluster: FakeCluster, api: FakeClient
    ) -> None:
        self.fill(cluster)

        class Torn(FakeClient):
            tears = 1

            def pages(self, *args: Any, **options: Any) -> Iterator[Page]:
                for number, page in enumerate(super().pages(*args, **options)):
                    if number and self.tears:
                        self.tears = 0
                        yield replace(page, resource_version=page.resource_version + 1)
                    yield page

        failures: list[str] = []
        informer = an_informer(Torn(cluster), timing=InformerTimings(sleep=lambda _: None))
        with _logged(failures):
            informer.start()
            assert informer.wait_for_sync(SOON)
            informer.stop()
        assert len(informer) == self.MANY
        assert "on one page and at" in failures[0]
        del api

    def test_an_answer_without_a_page_empties_nothing(
        self, cluster: FakeCluster, api: FakeClient
    ) -> None:
        class Mute(FakeClient):
            lists = 0

            def pages(self, *args: Any, **options: Any) -> Iterator[Page]:
                self.lists += 1
                return iter(()) if self.lists == 2 else super().pages(*args, **options)

        write(api, "a", "one")
        sizes: list[int] = []
        timing = InformerTimings(sleep=lambda _: sizes.append(len(informer)))
        informer = an_informer(Mute(cluster), timing=timing)
        failures: list[str] = []
        with _logged(failures):
            informer.start()
            assert informer.wait_for_sync(SOON)
            cluster.compact()
            cluster.cut_watches(ExpiredError("too old"))
            assert informer.wait_for_version(write(api, "b", "two"), SOON)
            informer.stop()
        assert set(sizes) == {1}
        assert "has no page" in failures[-1]
        assert informer.relists == 2

    def test_only_what_is_new_is_decoded_one_by_one(self, cluster: FakeCluster) -> None:
        self.fill(cluster)
        decoded: list[int] = []

        def decode(data: bytes) -> Object:
            decoded.append(len(data))
            return decode_object(data)

        flaky = FaultyClient(FakeClient(cluster), in_turn([Fault.EXPIRE], verb="watch"))
        informer = Informer(flaky, CONFIG_MAPS, transform=text_of, timings=AT_ONCE, decode=decode)
        informer.start()
        version = write(FakeClient(cluster), "new", "two")
        assert informer.wait_for_version(version, SOON)
        informer.stop()
        assert len(decoded) == self.MANY + 1

    def test_what_cannot_be_decoded_is_kept_as_an_error(
        self, cluster: FakeCluster, api: FakeClient
    ) -> None:
        def decode(data: bytes) -> Object:
            if b"bad" in data:
                raise ValueError("no such shape")
            return decode_object(data)

        write(api, "a", "bad")
        informer = Informer(api, CONFIG_MAPS, transform=text_of, timings=AT_ONCE, decode=decode)
        informer.start()
        assert informer.wait_for_sync(SOON)
        version = write(api, "b", "bad")
        version = max(version, write(api, "c", "good"))
        assert informer.wait_for_version(version, SOON)
        informer.stop()
        assert informer.items() == {"team-a/c": "good"}
        errors = {key: str(error) for key, error in informer.errors().items()}
        assert errors == {"team-a/a": "no such shape", "team-a/b": "no such shape"}
        del cluster


@contextmanager
def _logged(texts: list[str]) -> Iterator[None]:
    """Collect the errors that informers log."""

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(str(getattr(record, "error", "")))

    logger, handler = logging.getLogger("webhook.kube.informer"), Collect()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
