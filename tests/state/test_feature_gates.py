"""Which feature gates of the API server decide what a suspended Job may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.reactions import (
    VERSION,
    Call,
    Proceed,
    Reactor,
    VersionedClient,
    fail,
    in_turn,
    unreachable,
)
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.kube.api import (
    JOBS,
    ApiError,
    ForbiddenError,
    InvalidError,
    Object,
    Revision,
    UnreachableError,
)
from webhook.kube.errors import FieldCause
from webhook.quota.jobs import ALL_GATES, JobGate, job_state, job_update_errors
from webhook.state.feature_gates import (
    PROBE_JOB,
    UNKNOWN,
    FeatureGateProbe,
    FeatureGates,
    version_of,
)

RESOURCES, SCHEDULING = JobGate.MUTABLE_RESOURCES, JobGate.MUTABLE_SCHEDULING
SETTINGS = [(), (RESOURCES,), (SCHEDULING,), (RESOURCES, SCHEDULING)]
NONE: frozenset[str] = frozenset()
SYSTEM = "deferred-quota-system"


def installed_probe() -> Object:
    (probe,) = (each for each in render().cluster if each["kind"] == "Job")
    return probe


class JobServer:
    """An API server of some version with some gates on, which checks updates of Jobs."""

    def __init__(self, minor: str, gates: frozenset[str] = ALL_GATES) -> None:
        self.gates = gates
        self.client = VersionedClient(minor=minor)
        self.client.create(JOBS, installed_probe())
        self.client.on("patch", JOBS, self._check, subresource="")

    @property
    def probe(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.client.get(JOBS, PROBE_JOB, namespace=SYSTEM))

    def refuse(self, error: ApiError) -> Reactor:
        """Let no Job be changed."""
        return self.client.on("patch", JOBS, fail(error), subresource="")

    def _check(self, call: Call, proceed: Proceed) -> Revision:
        assert call.dry_run, "a Job's spec is changed for real"
        old = self.client.get(JOBS, call.name, namespace=call.namespace)
        changed: Revision = proceed()
        errors = job_update_errors(old, changed.object, self.gates)
        if errors:
            causes = [FieldCause(each.type, each.field, each.message) for each in errors]
            raise InvalidError.of(JOBS, call.name, causes)
        return changed


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def found_by(client: FakeClient) -> FeatureGates:
    gates = FeatureGateProbe(client, Clock())
    gates.probe()
    return gates.gates


@pytest.mark.parametrize("minor", ["34", "28+"])
def test_before_1_35_there_are_none(minor: str) -> None:
    api = JobServer(minor)
    assert found_by(api.client) == FeatureGates(enabled=NONE)
    assert api.client.calls_of("patch") == []


@pytest.mark.parametrize("minor", ["35", "35+", "36", "37+", ""])
@pytest.mark.parametrize("on", SETTINGS)
def test_from_1_35_on_it_is_tried(minor: str, on: tuple[str, ...]) -> None:
    assert found_by(JobServer(minor, frozenset(on)).client) == FeatureGates(enabled=frozenset(on))


def test_a_try_changes_nothing_but_the_status_and_that_once() -> None:
    api = JobServer("36")
    spec = api.probe["spec"]
    found_by(api.client)
    version = api.probe["metadata"]["resourceVersion"]
    found_by(api.client)
    assert api.probe["spec"] == spec
    assert api.probe["metadata"]["resourceVersion"] == version


def test_the_probe_is_a_job_that_nothing_runs() -> None:
    api = JobServer("36")
    found_by(api.client)
    state = job_state(api.probe)
    assert (state.suspended, state.active, state.started) == (True, 0, True)
    assert api.probe["spec"]["managedBy"] == "deferredquota.io/nobody"


REFUSALS: Mapping[str, ApiError] = {
    "a missing right": ForbiddenError("jobs.batch is forbidden"),
    "a webhook": InvalidError('admission webhook "x" denied the request: spec.template: no'),
    "a policy": InvalidError(f'jobs.batch "{PROBE_JOB}" is forbidden: ValidatingAdmissionPolicy'),
    "another rule": InvalidError(f'Job.batch "{PROBE_JOB}" is invalid: metadata.labels: no'),
    "an outage": UnreachableError("nobody answers"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_what_tells_nothing_of_gates_leaves_them_unknown(refusal: ApiError) -> None:
    api = JobServer("36", NONE)
    api.refuse(refusal)
    assert found_by(api.client) == UNKNOWN


def test_without_the_probe_they_are_unknown() -> None:
    api = JobServer("36", NONE)
    api.client.delete(JOBS, PROBE_JOB, namespace=SYSTEM)
    assert found_by(api.client) == UNKNOWN


CHANGED: Mapping[str, Object] = {
    "it was resumed": {"suspend": False},
    "the Job controller is responsible for it": {"managedBy": None},
}


@pytest.mark.parametrize("spec", CHANGED.values(), ids=CHANGED.keys())
def test_a_probe_that_is_not_as_it_was_installed_tells_nothing(spec: Object) -> None:
    api = JobServer("36", NONE)
    FakeClient(api.client.cluster).patch(JOBS, PROBE_JOB, {"spec": spec}, namespace=SYSTEM)
    assert found_by(api.client) == UNKNOWN


def test_an_api_server_that_says_no_version_is_as_1_36() -> None:
    assert found_by(FakeClient(FakeCluster())) == FeatureGates()


def test_before_the_first_look_nothing_is_known() -> None:
    assert FeatureGateProbe(JobServer("36").client, Clock()).gates == UNKNOWN


def test_where_all_are_on_it_is_asked_again_after_a_while() -> None:
    api, clock = JobServer("36"), Clock()
    gates = FeatureGateProbe(api.client, clock, pause_seconds=300)
    assert gates.probe()
    clock.now = 299
    assert not gates.probe()
    assert len(api.client.calls_of("get", VERSION)) == 1
    api.gates, clock.now = frozenset({RESOURCES}), 301
    assert gates.probe()
    assert gates.gates != FeatureGates()


def test_a_gate_that_is_turned_on_is_seen_sooner_and_on_the_same_version() -> None:
    api, clock = JobServer("35", NONE), Clock()
    gates = FeatureGateProbe(api.client, clock, short_pause_seconds=60)
    gates.probe()
    assert gates.enabled == NONE
    api.gates, clock.now = ALL_GATES, 61
    assert gates.probe()
    assert gates.gates == UNKNOWN
    clock.now = 122
    assert gates.probe()
    assert gates.gates == FeatureGates()


def founds(
    answers: list[tuple[str, frozenset[str]]], first: tuple[str, frozenset[str]]
) -> list[FeatureGates]:
    """What is known after each answer of an address behind which there may be several servers."""
    api, clock = JobServer(*first), Clock()
    gates = FeatureGateProbe(api.client, clock)
    gates.probe()
    after = []
    for api.client.minor, api.gates in answers:
        clock.now += 301
        gates.probe()
        after.append(gates.gates)
    return after


BOTH, ONE, OTHER = (
    ("36", ALL_GATES),
    ("36", frozenset({RESOURCES})),
    ("36", frozenset({SCHEDULING})),
)
HALF_KNOWN = FeatureGates(enabled=ALL_GATES, unsure=frozenset({SCHEDULING}))


@pytest.mark.parametrize("first", [BOTH, ONE, OTHER], ids=["both", "one", "other"])
def test_a_gate_is_known_again_when_two_tries_in_a_row_agree(
    first: tuple[str, frozenset[str]],
) -> None:
    assert founds([ONE, ONE], first)[-1] == FeatureGates(enabled=ONE[1])


def test_a_gate_that_two_api_servers_have_in_different_ways_is_not_known() -> None:
    assert founds([ONE, BOTH, ONE], BOTH) == [HALF_KNOWN] * 3
    assert founds([OTHER, ONE], ONE) == [UNKNOWN] * 2


@pytest.mark.parametrize("gates", [NONE, ALL_GATES])
def test_while_versions_differ_no_gate_is_known(gates: frozenset[str]) -> None:
    older, newer = ("35", gates), ("36", gates)
    assert founds([newer, older, newer], older) == [UNKNOWN] * 3
    assert founds([newer, newer], older) == [UNKNOWN, FeatureGates(enabled=gates)]


def test_an_upgrade_is_seen() -> None:
    assert founds([BOTH, BOTH], ("34", NONE)) == [UNKNOWN, FeatureGates()]


def test_a_try_that_fails_after_an_upgrade_is_made_again() -> None:
    api, clock = JobServer("34"), Clock()
    gates = FeatureGateProbe(api.client, clock, short_pause_seconds=60)
    gates.probe()
    api.client.minor, api.gates, clock.now = "35", frozenset({SCHEDULING}), 61
    refusal = api.refuse(ForbiddenError("not now"))
    assert gates.probe()
    assert gates.gates == UNKNOWN, "what 1.34 had says nothing of 1.35"
    refusal.remove()
    clock.now = 122
    assert not gates.probe(), "the try before told nothing of them"
    clock.now = 183
    assert gates.probe()
    assert gates.gates == FeatureGates(enabled=frozenset({SCHEDULING}))


def test_a_try_that_another_version_did_not_answer_makes_the_former_one_unsure() -> None:
    api, clock = JobServer("34"), Clock()
    gates = FeatureGateProbe(api.client, clock, short_pause_seconds=60)
    gates.probe()
    api.client.minor, clock.now = "36", 61
    api.refuse(ForbiddenError("not now"))
    gates.probe()
    api.client.minor, clock.now = "34", 122
    gates.probe()
    assert gates.gates == UNKNOWN
    clock.now = 183
    gates.probe()
    assert gates.gates == FeatureGates(enabled=NONE)


def test_an_outage_between_two_tries_that_agree_does_not_matter() -> None:
    api, clock = JobServer("35", NONE), Clock()
    gates = FeatureGateProbe(api.client, clock, short_pause_seconds=60)
    api.client.on("get", VERSION, in_turn([None, unreachable, None]))
    for clock.now in (0, 61, 122):
        gates.probe()
        assert gates.gates == FeatureGates(enabled=NONE)


def test_an_outage_changes_nothing_for_a_while() -> None:
    api, clock = JobServer("35", NONE), Clock()
    gates = FeatureGateProbe(api.client, clock, short_pause_seconds=60, stale_seconds=900)
    gates.probe()
    api.client.on("get", VERSION, unreachable)
    clock.now = 700
    assert not gates.probe()
    assert gates.enabled == NONE
    clock.now = 901
    assert gates.probe()
    assert gates.gates == UNKNOWN


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"major": "1", "minor": "36"}, (1, 36)),
        ({"major": "1", "minor": "34+"}, (1, 34)),
        ({"major": "", "minor": ""}, None),
        ({}, None),
    ],
)
def test_reads_versions(answer: Mapping[str, object], version: tuple[int, int] | None) -> None:
    assert version_of(answer) == version
