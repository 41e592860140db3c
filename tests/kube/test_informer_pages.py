"""An informer takes long lists in page by page, and decodes as it is told."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.kube.builders import a_config_map, meta
from tests.kube.contract.base import SOON
from tests.kube.informers import (
    AT_ONCE,
    Seen,
    Start,
    an_informer,
    next_changes,
    remove,
    rewrite,
    text_of,
    write,
)
from tests.reactions import (
    Call,
    Proceed,
    ReactiveClient,
    StaleReads,
    expire,
    in_turn,
    preceded_by,
    unavailable,
)
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CONFIG_MAPS, ExpiredError, Object, Page
from webhook.kube.codec import decode_object
from webhook.kube.informer import Informer, InformerTimings


class TestPages:
    """Long lists come in parts of 500."""

    MANY = 1203

    def fill(self, cluster: FakeCluster) -> None:
        names = (f"n{number:04}" for number in range(self.MANY))
        cluster.load((CONFIG_MAPS, a_config_map(name, text="one")) for name in names)

    def test_a_long_list_is_taken_in_whole(self, cluster: FakeCluster, start: Start) -> None:
        self.fill(cluster)
        flaky = ReactiveClient(cluster)
        informer, _ = start(flaky)
        assert informer.wait_for_sync(SOON)
        assert len(informer) == self.MANY
        assert informer.relists == 1
        assert len(flaky.calls) == 4  # three pages and the watch

    def test_what_is_still_listed_is_not_forgotten_meanwhile(
        self, cluster: FakeCluster, api: FakeClient, start: Start
    ) -> None:
        self.fill(cluster)
        flaky = ReactiveClient(cluster)
        informer, seen = start(flaky)
        assert informer.wait_for_sync(SOON)
        next_changes(seen, self.MANY)
        sizes: list[int] = []
        flaky.on("continue", "*", preceded_by(lambda _: sizes.append(len(informer))))
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
        flaky, synced = ReactiveClient(cluster), list[bool]()
        flaky.on("continue", "*", expire, times=1)
        flaky.on("*", "*", preceded_by(lambda _: synced.append(informer.has_synced)))
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
        flaky, stale = ReactiveClient(cluster), StaleReads()
        flaky.on("list", "*", stale.remember)
        informer, seen = start(flaky)
        assert informer.wait_for_sync(SOON)
        next_changes(seen, self.MANY)
        rewrite(api, "n0000", "two")
        flaky.on("list", "*", in_turn([None, stale.repeat]))
        flaky.on("continue", "*", unavailable, times=1)
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

        def of_another_moment(_call: Call, proceed: Proceed) -> Page:
            page: Page = proceed()
            return replace(page, resource_version=page.resource_version + 1)

        torn, failures = ReactiveClient(cluster), list[str]()
        torn.on("continue", "*", of_another_moment, times=1)
        informer = an_informer(torn, timing=InformerTimings(sleep=lambda _: None))
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
        mute = ReactiveClient(cluster)
        mute.on("list", "*", in_turn([None, lambda _call, _proceed: iter(())]))
        write(api, "a", "one")
        sizes: list[int] = []
        timing = InformerTimings(sleep=lambda _: sizes.append(len(informer)))
        informer = an_informer(mute, timing=timing)
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

        flaky = ReactiveClient(cluster)
        flaky.on("watch", "*", expire, times=1)
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
        errors = {key: str(entry.error) for key, entry in informer.errors_in("team-a").items()}
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
