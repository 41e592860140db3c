"""History: read from etcd's gateway, through restarts, and written down as facts."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.torture.observer.amounts import NANO
from tests.torture.observer.etcd import Change, EtcdHistory, LostHistoryError
from tests.torture.observer.facts import (
    ClusterFact,
    LedgerFact,
    PodFact,
    QuotaFact,
    SpaceFact,
    from_line,
    ledger_fact,
    pod_fact,
    to_line,
)
from tests.torture.observer.recorder import read_change, read_lines
from tests.torture.observer.usage import Expression, Traits


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def event(revision: int, value: str = "{}", *, is_deleted: bool = False) -> dict[str, Any]:
    key = {"key": encoded("/registry/pods/n/p"), "mod_revision": str(revision)}
    if is_deleted:
        return {"type": "DELETE", "kv": key, "prev_kv": {**key, "value": encoded(value)}}
    return {"kv": {**key, "value": encoded(value)}}


class Gateway:
    """Speaks as etcd's JSON gateway does; each connection gets the next script, then ends."""

    def __init__(self, *scripts: list[dict[str, Any]]) -> None:
        self.asked: list[int] = []
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                gateway.asked.append(int(body["create_request"]["start_revision"]))
                self.send_response(200)
                self.end_headers()
                script = (
                    scripts[len(gateway.asked) - 1] if len(gateway.asked) <= len(scripts) else []
                )
                for result in script:
                    self.wfile.write(json.dumps({"result": result}).encode() + b"\n")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def history(self) -> Iterator[Change]:
        return iter(EtcdHistory(self.url, "/registry/pods/", "/registry/pods0", revision=5))

    def read(self, count: int) -> list[Change]:
        """Read so many changes, and end everything."""
        changes = self.history()
        try:
            return [next(changes) for _ in range(count)]
        finally:
            changes.close()  # type: ignore[attr-defined] # it is a generator
            self.server.shutdown()
            self.server.server_close()


def test_a_watch_goes_on_after_the_last_revision_that_it_has_read() -> None:
    gateway = Gateway(
        [{"created": True}, {"events": [event(7), event(8, '{"a": 1}', is_deleted=True)]}],
        [],
        [{"events": [event(9)]}],
    )
    assert [(one.revision, one.is_deleted) for one in gateway.read(3)] == [
        (7, False),
        (8, True),
        (9, False),
    ]
    assert gateway.asked == [5, 9, 9]


def test_a_deletion_shows_what_was_deleted() -> None:
    gateway = Gateway([{"events": [event(8, '{"a": 1}', is_deleted=True)]}])
    assert gateway.read(1)[0].value == b'{"a": 1}'


def test_history_that_is_gone_is_an_error() -> None:
    gateway = Gateway([{"compact_revision": "9", "canceled": True}])
    with pytest.raises(LostHistoryError, match="from 5: compacted at 9"):
        gateway.read(1)


POD: dict[str, Any] = {
    "metadata": {"namespace": "n", "name": "p", "uid": "u"},
    "spec": {
        "nodeName": "node",
        "priorityClassName": "gold",
        "activeDeadlineSeconds": 5,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
    },
    "status": {"phase": "Running"},
}
QUOTA: dict[str, Any] = {
    "metadata": {"namespace": "n", "name": "q", "uid": "u"},
    "spec": {"hard": {"cpu": "2", "pods": "3"}, "scopes": ["Terminating"]},
    "status": {"hard": {"pods": "3", "cpu": "2"}, "used": {"memory": "1"}},
}
LEDGER: dict[str, Any] = {
    "metadata": {"namespace": "n", "name": "ledger", "uid": "u"},
    "status": {
        "quotas": [
            {
                "name": "q",
                "observed": {"uid": "u", "specHash": "h"},
                "used": {"cpu": "1"},
                "reserved": {"cpu": "500m"},
            }
        ],
        "reservations": "x web-1 Bind 1 q cpu=1",
    },
}


def change(key: str, obj: object, *, is_deleted: bool = False) -> Change:
    return Change(key, 7, json.dumps(obj).encode(), is_deleted)


def test_pods_quotas_and_ledgers_become_facts() -> None:
    pod = read_change(change("/registry/pods/n/p", POD))
    assert isinstance(pod, PodFact)
    assert (pod.is_assigned, pod.is_live, pod.usage["requests.cpu"]) == (True, True, NANO)
    assert pod.traits == Traits(priority_class="gold", has_deadline=True)
    quota = read_change(change("/registry/resourcequotas/n/q", QUOTA))
    assert isinstance(quota, QuotaFact)
    assert quota.hard == {"cpu": 2 * NANO}
    assert quota.conditions == (Expression("Terminating"),)
    assert quota.unmasked == ("cpu", "memory")
    ledger = read_change(change("/registry/deferredquota.io/quotaledgers/n/ledger", LEDGER))
    assert isinstance(ledger, LedgerFact)
    assert ledger.accounts["q"].used == {"cpu": NANO}
    assert ledger.accounts["q"].reserved == {"cpu": NANO // 2}
    assert ledger.reservations == 1


def test_gates_and_promises_become_facts() -> None:
    gates = {"schedulingGates": [{"name": "other"}, {"name": "deferredquota.io/quota"}]}
    waits = read_change(change("/registry/pods/n/p", {**POD, "spec": {**POD["spec"], **gates}}))
    assert isinstance(waits, PodFact)
    assert (waits.is_gated, waits.is_let_through) == (True, False)
    mark = {"annotations": {"deferredquota.io/ungated": "true"}}
    spared = read_change(change("/registry/pods/n/p", {**POD, "metadata": POD["metadata"] | mark}))
    assert isinstance(spared, PodFact)
    assert (spared.is_gated, spared.is_let_through) == (False, True)
    lines = (
        "x web-1 Bind 1 q cpu=1",
        "y web-2 Release 2 q cpu=1 after=7",
        '{"uid": "z", "pod": "web 3", "door": "Release"}',
        "{by hand",
    )
    status = {**LEDGER["status"], "reservations": "\n".join(lines)}
    ledger = ledger_fact({**LEDGER, "status": status}, revision=1, at=0.0)
    assert (ledger.promised, ledger.reservations) == (("y", "z"), 4)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({}, (False, True)),
        ({"deferredquota.io/mode": "deferred"}, (True, True)),
        ({"deferredquota.io/mode": "shadow", "deferredquota.io/gating": "always"}, (False, True)),
        ({"deferredquota.io/mode": "deferred", "deferredquota.io/gating": "never"}, (True, False)),
        ({"deferredquota.io/mode": "deferred", "deferredquota.io/gating": "auto"}, (True, True)),
    ],
)
def test_namespaces_become_facts(labels: dict[str, str], says: tuple[bool, bool]) -> None:
    namespace = {"metadata": {"name": "n", "labels": labels}}
    fact = read_change(change("/registry/namespaces/n", namespace))
    assert isinstance(fact, SpaceFact)
    assert (fact.is_deferred, fact.is_paced) == says
    assert fact.lets_through is (labels.get("deferredquota.io/gating") == "auto")
    assert from_line(to_line(fact)) == fact


def test_cluster_quotas_become_facts() -> None:
    quota = {
        "metadata": {"name": "all", "uid": "u"},
        "spec": {"hard": {"requests.cpu": "2"}, "namespaceSelector": {}},
        "status": {"namespaces": [{"name": "b", "granted": {}}, {"name": "a"}]},
    }
    fact = read_change(change("/registry/deferredquota.io/clusterdeferredquotas/all", quota))
    assert isinstance(fact, ClusterFact)
    assert (fact.hard, fact.members) == ({"requests.cpu": 2 * NANO}, ("a", "b"))
    assert from_line(to_line(fact)) == fact


def test_a_quota_that_is_left_to_the_api_server_limits_nothing_here() -> None:
    metadata = {**QUOTA["metadata"], "annotations": {"deferredquota.io/exclude": "true"}}
    fact = read_change(change("/registry/resourcequotas/n/q", {**QUOTA, "metadata": metadata}))
    assert isinstance(fact, QuotaFact)
    assert (fact.hard, fact.unmasked) == ({}, ())


def test_what_is_deleted_or_has_ended_takes_nothing() -> None:
    gone = read_change(change("/registry/pods/n/p", POD, is_deleted=True))
    ended = read_change(change("/registry/pods/n/p", {**POD, "status": {"phase": "Failed"}}))
    assert isinstance(gone, PodFact)
    assert isinstance(ended, PodFact)
    assert not gone.is_live
    assert not ended.is_live


def test_a_deleted_pod_is_released_a_grace_period_after_its_time() -> None:
    deleted = {
        **POD,
        "metadata": {
            **POD["metadata"],
            "deletionTimestamp": "2026-01-01T00:00:10Z",
            "deletionGracePeriodSeconds": 30,
        },
    }
    fact = pod_fact(deleted, revision=1, at=1000.0, wall=1767225600.0)  # midnight
    assert fact.released_at == pytest.approx(1040.0)


def test_a_ledger_that_cannot_be_read_says_nothing() -> None:
    for status in ({"quotas": [{"name": "q"}]}, {"quotas": "many"}, None):
        fact = ledger_fact({**LEDGER, "status": status}, revision=1, at=0.0)
        assert fact.is_there
        assert not fact.accounts


def test_objects_that_are_not_json_are_refused() -> None:
    with pytest.raises(ValueError, match="--storage-media-type"):
        read_change(Change("/registry/pods/n/p", 1, b"k8s\x00", is_deleted=False))
    with pytest.raises(ValueError, match="neither a pod"):
        read_change(change("/registry/events/n/e", {}))


def test_facts_survive_their_lines(tmp_path: Path) -> None:
    facts = [
        read_change(change("/registry/pods/n/p", POD)),
        read_change(change("/registry/resourcequotas/n/q", QUOTA)),
        read_change(change("/registry/deferredquota.io/quotaledgers/n/ledger", LEDGER)),
    ]
    assert [from_line(to_line(fact)) for fact in facts] == facts
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(map(to_line, facts)) + b'["pod", {"half')
    assert list(read_lines(path)) == facts
