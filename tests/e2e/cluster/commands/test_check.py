"""`check` on a snapshot says what the control plane then does, set by set.

All namespaces are made first, and judged by one run on one snapshot. Then the first object of every
set is created, and when each has come to what was said, the second, and so on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.commands.manifest_sets import GOLD, ManifestSet, manifest_sets, path_of
from tests.e2e.cluster.objects import Answer, Api, Object
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cli import cli
from webhook.quota.objects.names import DEFERRED_KEYS

SETS: Final = 110
SEED: Final = 2
KINDS: Final = "ns,quota,limits,priorityclasses,nodes,pods,ql"
NO_PODS: Final = frozenset({"Service", "ConfigMap", "PersistentVolumeClaim"})
_SHORT: Final = re.compile(r"(\d+) of (\d+) pods? (wait|is refused|are refused)")
_VALUE: Final = re.compile(r"Invalid value: (?:\"[^\"]*\"|\[.*?\]|\{.*?\}+)(?:: )?")
_PREFIX: Final = re.compile(r'^[A-Za-z.]+ "[^"]*" is (forbidden|invalid): ')

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the report says of one object."""

    entry: Entry
    is_deferred: bool

    @property
    def key(self) -> tuple[str, str]:
        return str(self.entry["namespace"]), str(self.entry["name"])

    @property
    def words(self) -> list[str]:
        """Why the object itself is refused, without the beginning."""
        if self.entry["kind"] not in {"Pod", *NO_PODS}:
            findings = [one for one in self.entry["findings"] if self._is_own(one)]
        else:
            findings = self.entry["findings"]
        return [
            _PREFIX.sub("", one["text"]).partition("; one pod alone")[0]
            for one in findings
            if one["verdict"] == "refused"
            or (one["verdict"] == "never-fits" and not self._late(one))
        ]

    def _is_own(self, found: Entry) -> bool:
        """Whether a workload itself is refused, and not its pods."""
        text, kind = str(found["text"]), str(self.entry["kind"])
        return found["rule"] == "object-quota" or text.startswith(f"{kind}.")

    def _late(self, found: Entry) -> bool:
        resources = {one["resource"] for one in found.get("resources", ())}
        return self.is_deferred and resources <= DEFERRED_KEYS

    @property
    def pods(self) -> tuple[int, int]:
        """How many pods there are in the end, and how many of them wait for no quota."""
        created = started = int(self.entry["pods"])
        if self.words:
            return 0, 0
        for one in self.entry["findings"]:
            short = _SHORT.search(one["text"])
            if one["verdict"] == "refused" or (one["rule"] == "never-fits" and not self._late(one)):
                created = 0
            elif one["rule"] in {"queue", "never-fits"}:
                started = 0
            elif short is not None and short[3] == "wait":
                started = min(started, int(short[2]) - int(short[1]))
            elif short is not None:
                created = min(created, int(short[2]) - int(short[1]))
        return created, min(created, started)


@dataclass(slots=True)
class Stage:
    """The control plane, and what was said of every object."""

    plane: ControlPlane
    api: Api
    sets: tuple[ManifestSet, ...]
    expected: dict[tuple[str, str], Expected] = field(default_factory=dict)

    def pods(self) -> dict[tuple[str, str], list[Object]]:
        """Read all pods, by namespace and name of the object that they belong to."""
        found: dict[tuple[str, str], list[Object]] = {}
        for raw in self.api.get("/api/v1/pods").body["items"]:
            meta = raw["metadata"]
            owner = str(meta.get("labels", {}).get("app") or "")
            job = str(meta.get("labels", {}).get("job-name") or "")
            key = str(meta["namespace"]), owner or job or str(meta["name"])
            found.setdefault(key, []).append(raw)
        return found


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("check-plane")) as plane:
        plane.add_nodes(4, cpu="500", pods=1000)
        gold = {"metadata": {"name": GOLD}, "value": 1000}
        assert Api(plane.rest).create("/apis/scheduling.k8s.io/v1/priorityclasses", gold).ok
        yield plane


@pytest.fixture(scope="module")
def stage(own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Product.start(own_plane, tmp_path_factory.mktemp("check-product")):
        made = Stage(own_plane, Api(own_plane.rest), manifest_sets(SETS, SEED))
        for one in made.sets:
            apply_namespace(
                made.api,
                one.namespace,
                mode="deferred" if one.is_deferred else "",
                gating="always",
            )
        eventually(lambda: not _bare(made), "every namespace has the ConfigMap of the CA", 90)
        for raw in (raw for one in made.sets for raw in one.limits):
            answer = made.api.create(path_of(raw), raw)
            assert answer.ok, str(answer)
        none: list[str] = []
        becomes(lambda: _uncounted(made), none, "every quota is counted", 90)
        made.expected = _checked(made, tmp_path_factory.mktemp("check"))
        yield made


def _bare(stage: Stage) -> set[str]:
    """Return the namespaces without the ConfigMap that each gets: it has to be counted."""
    listed = stage.api.get("/api/v1/configmaps").body["items"]
    return {one.namespace for one in stage.sets} - {raw["metadata"]["namespace"] for raw in listed}


def _uncounted(stage: Stage) -> list[str]:
    """Name the quotas whose use is not known yet, and the ledgers that do not count them."""
    missing = []
    for raw in stage.api.get("/api/v1/resourcequotas").body["items"]:
        hard, used = raw["status"].get("hard", {}), raw["status"].get("used", {})
        if not hard.keys() <= used.keys() or (
            not hard and set(raw["spec"]["hard"]) - DEFERRED_KEYS
        ):
            missing.append(raw["metadata"]["name"])
    for one in stage.sets:
        if one.is_deferred:
            answer = stage.api.get(objects.ledger(one.namespace))
            quotas = answer.body.get("status", {}).get("quotas", []) if answer.ok else None
            late = sum(
                not DEFERRED_KEYS.isdisjoint(raw["spec"]["hard"])  # type: ignore[index]
                for raw in one.limits
                if raw["kind"] == "ResourceQuota"
            )
            if quotas is None or len(quotas) < late:
                missing.append(one.namespace)
    return missing


def _checked(stage: Stage, directory: Path) -> dict[tuple[str, str], Expected]:
    snapshot, manifests = directory / "cluster.yaml", directory / "sets.yaml"
    snapshot.write_text(stage.plane.kubectl("get", KINDS, "-A", "-o", "yaml"), encoding="utf-8")
    every = [raw for one in stage.sets for raw in one.objects]
    manifests.write_text(yaml.safe_dump_all(every), encoding="utf-8")
    arguments = ["-f", str(manifests), "--snapshot", str(snapshot)]
    result = CliRunner().invoke(cli, ["check", *arguments, "--rollout", "steady", "-o", "json"])
    assert result.exit_code == 1, result.output
    deferred = {one.namespace for one in stage.sets if one.is_deferred}
    found = [
        Expected(entry, entry["namespace"] in deferred)
        for entry in json.loads(result.stdout)["objects"]
    ]
    return {one.key: one for one in found}


def test_what_is_said_comes_true(stage: Stage) -> None:
    wrong: list[str] = []
    for number in range(max(len(one.objects) for one in stage.sets)):
        wave = [one.objects[number] for one in stage.sets if number < len(one.objects)]
        said = [stage.expected[_key(raw)] for raw in wave]
        for raw, one in zip(wave, said, strict=True):
            wrong += _answer_faults(one, stage.api.create(path_of(raw), raw))
        try:
            eventually(lambda: not _pod_faults(stage, said), "pods are as was said", 40)  # noqa: B023
        except AssertionError:
            wrong += _pod_faults(stage, said)
    everything = list(stage.expected.values())
    eventually(lambda: not _event_faults(stage) or wrong, "the events are as was said", 40)
    wrong += _pod_faults(stage, everything)
    assert not wrong, "\n".join(dict.fromkeys(wrong))


def test_every_verdict_and_most_rules_are_among_them(stage: Stage) -> None:
    verdicts = Counter(one.entry["verdict"] for one in stage.expected.values())
    assert min(verdicts[name] for name in ("admitted", "waits", "refused", "never-fits")) >= 10
    assert verdicts["no-node-fits"] >= 2
    rules = {found["rule"] for one in stage.expected.values() for found in one.entry["findings"]}
    assert rules >= {
        *("limit-range", "must-specify", "never-fits", "no-node-fits", "object-quota"),
        *("invalid", "priority-class", "queue", "quota-exceeded", "quota-wait"),
    }


def _key(raw: Object) -> tuple[str, str]:
    meta = raw["metadata"]
    assert isinstance(meta, dict)
    return str(meta["namespace"]), str(meta["name"])


def _answer_faults(said: Expected, answer: Answer) -> Iterator[str]:
    """Yield that an object was refused otherwise than was said."""
    words = said.words
    if answer.ok != (not words):
        yield f"{said.key}: said {words}, answered {answer}"
    elif words and not any(_agree(one, answer.message) for one in words):
        yield f"{said.key}: said {words}, answered {answer.message}"


def _agree(words: str, message: str) -> bool:
    """Compare what is said, in whatever order an API server lists several faults."""
    return all(part in message for part in words.strip("[]").split(", "))


def _pod_faults(stage: Stage, said: list[Expected]) -> list[str]:
    found = stage.pods()
    faults = []
    for one in said:
        if one.entry["kind"] in NO_PODS:
            continue
        pods = found.get(one.key, [])
        started = [raw for raw in pods if not raw["spec"].get("schedulingGates")]
        numbers = len(pods), len(started)
        if numbers != one.pods:
            faults.append(f"{one.key}: said {one.pods} in {one.entry}, there are {numbers}")
    return faults


def _event_faults(stage: Stage) -> list[str]:
    """Return the workloads whose pods were refused with other words than was said."""
    events: dict[tuple[str, str], list[str]] = {}
    for raw in stage.api.get("/api/v1/events").body["items"]:
        if raw["reason"] == "FailedCreate":
            name = re.sub(r"-[0-9a-f]{8,10}$", "", raw["involvedObject"]["name"])
            key = raw["involvedObject"]["namespace"], name
            events.setdefault(key, []).append(raw["message"])
    faults = []
    for one in stage.expected.values():
        if one.entry["kind"] in {"Pod", *NO_PODS} or one.words:
            continue
        words = [
            _PREFIX.sub("", found["text"])
            for found in one.entry["findings"]
            if found["verdict"] == "refused"
        ]
        messages = events.get(one.key, [])
        if words and not any(_agree(each, text) for each in words for text in messages):
            faults.append(f"{one.key}: said {words}, the events are {messages[:3]}")
    return faults


_HARD: Final[Mapping[str, Object]] = {
    "good": {"hard": {"requests.cpu": "1", "count/jobs.batch": "1", "requests.example.com/x": 1}},
    "empty": {},
    "negative": {"hard": {"requests.cpu": "-1"}},
    "fractions": {"hard": {"pods": "100m", "requests.example.com/x": "1500m", "limits.cpu": "1m"}},
    "unknown": {"hard": {"foo": "1", "a/b/c": "1", "storage": "1"}},
    "no-scope": {"hard": {"pods": "1"}, "scopes": ["Foo"]},
    "unfit": {"hard": {"requests.cpu": "1"}, "scopes": ["BestEffort"]},
    "conflict": {"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]},
    "not-of-pods": {"hard": {"services": "1"}, "scopes": ["NotTerminating"]},
    "no-values": {
        "hard": {"pods": "1"},
        "scopeSelector": {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": []}]
        },
    },
    "values": {
        "hard": {"pods": "1"},
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "Terminating", "operator": "Exists", "values": ["x"]},
                {"scopeName": "BestEffort", "operator": "In", "values": ["x"]},
            ]
        },
    },
    "no-label": {
        "hard": {"pods": "1"},
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["not a label"]}
            ]
        },
    },
}
_LIMITS: Final[Mapping[str, list[Object]]] = {
    "good": [
        {"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "2"}},
        {"type": "Pod", "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}},
        {"type": "example.com/thing", "max": {"pods": "1"}, "default": {"pods": "2"}},
    ],
    "empty": [],
    "order": [
        {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
        {"type": "Pod", "min": {"memory": "2Gi"}, "max": {"memory": "1Gi"}},
    ],
    "defaults": [
        {
            "type": "Container",
            "min": {"cpu": "1"},
            "default": {"cpu": "500m"},
            "defaultRequest": {"cpu": "600m"},
        }
    ],
    "of-pods": [{"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}],
    "types": [{"type": "Pod"}, {"type": "Pod"}, {"type": "Job"}, {"type": "a_/b"}, {"type": ""}],
    "claims": [{"type": "PersistentVolumeClaim", "max": {"cpu": "1", "foo": "1"}}],
    "names": [{"type": "Container", "max": {"pods": "1", "example.com/x": "1", "foo": "1"}}],
    "ratios": [
        {
            "type": "Pod",
            "min": {"cpu": "300m", "memory": "0"},
            "max": {"cpu": "1", "memory": "1Gi"},
            "maxLimitRequestRatio": {"cpu": "4", "memory": "500m", "ephemeral-storage": "2"},
        }
    ],
    "devices": [
        {
            "type": "Container",
            "default": {"example.com/x": "2", "hugepages-2Mi": "4Mi"},
            "defaultRequest": {"example.com/x": "1", "hugepages-2Mi": "2Mi"},
        }
    ],
    "of-others": [
        {"type": "example.com/thing", "default": {"pods": "2"}, "max": {"pods": "1", "foo": "1"}}
    ],
}
_CLASSES: Final[Mapping[str, Object]] = {
    "user": {"value": 1_000_000_000},
    "high": {"value": 1_000_000_001},
    "system-gold": {"value": 1},
}


def _limiting() -> Iterator[tuple[str, Object]]:
    """Yield objects by which others are judged, right and wrong, with the path of each."""
    for name, spec in _HARD.items():
        raw = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": f"quota-{name}"}}
        yield "/api/v1/namespaces/default/resourcequotas", {**raw, "spec": spec}
    for name, limits in _LIMITS.items():
        raw = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": f"range-{name}"}}
        yield "/api/v1/namespaces/default/limitranges", {**raw, "spec": {"limits": limits}}
    for name, fields in _CLASSES.items():
        version = "scheduling.k8s.io/v1"
        raw = {"apiVersion": version, "kind": "PriorityClass", "metadata": {"name": name}}
        yield f"/apis/{version}/priorityclasses", {**raw, **fields}


def test_what_limits_others_is_refused_as_the_api_server_refuses_it(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    made = list(_limiting())
    path = tmp_path / "limits.json"
    items = [raw for _, raw in made]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "utf-8")
    result = CliRunner().invoke(cli, ["check", "-f", str(path), "-o", "json"])
    assert result.exit_code == 1, result.output
    entries = json.loads(result.stdout)["objects"]
    api, wrong = Api(own_plane.rest), []
    for (where, raw), entry in zip(made, entries, strict=True):
        answer = api.create(f"{where}?dryRun=All", raw)
        said = [one["text"] for one in entry["findings"]]
        if _faults(said) != _faults([] if answer.ok else [answer.body["message"]]):
            wrong.append(f"{raw['metadata']['name']}: said {said}, was {answer.body}")
    assert not wrong, "\n".join(wrong)


def test_changes_of_a_stored_job_are_refused_as_the_api_server_refuses_them(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    def night(
        *, suspend: bool, image: str = "registry.example.com/work:1", cpu: str = "500m"
    ) -> Object:
        container = {"name": "work", "image": image, "resources": {"requests": {"cpu": cpu}}}
        pod = {"restartPolicy": "Never", "containers": [container]}
        meta = {"name": f"night-{suspend}".lower(), "namespace": "default"}
        spec = {"suspend": suspend, "template": {"spec": pod}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}

    api, path, where = (
        Api(own_plane.rest),
        tmp_path / "job.json",
        "/apis/batch/v1/namespaces/default/jobs",
    )
    live = ("check", "-f", str(path), "--live", "--kubeconfig", str(own_plane.kubeconfig()))
    wrong = []
    for suspend in (False, True):
        assert api.create(where, night(suspend=suspend)).ok
        for change in ({}, {"cpu": "0.5"}, {"cpu": "1"}, {"image": "registry.example.com/work:2"}):
            raw = night(suspend=suspend, **change)
            path.write_text(json.dumps(raw), "utf-8")
            report = json.loads(CliRunner().invoke(cli, [*live, "-o", "json"]).stdout)
            said = [one["text"] for one in report["objects"][0]["findings"]]
            name = raw["metadata"]["name"]
            answer = api.patch_strategic(f"{where}/{name}", {"spec": raw["spec"]}, dry_run=True)
            if any("immutable" in text for text in said) is answer.ok:
                wrong.append(f"{suspend} {change}: said {said}, was {answer.body}")
    assert not wrong, "\n".join(wrong)


def _faults(messages: list[str]) -> set[str]:
    """Return the faults that messages list, without the values: maps have no order."""
    bare = [_VALUE.sub("", _PREFIX.sub("", one).strip("[]")) for one in messages]
    return {fault for one in bare for fault in re.split(r", (?=spec|value|metadata)", one)}
