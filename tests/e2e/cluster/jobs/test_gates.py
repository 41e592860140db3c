"""What may change of a Job on API servers with feature gates of Jobs on and off.

A control plane for each combination. At first the gates are nowhere said to the webhook: `jobGates`
is `Auto`, it runs as it is installed, and finds them out by its own rights. Then it is told them,
and its verdicts are compared with those of the API server, which nobody guards elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.controlplane import features
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.configured import configured
from tests.e2e.cluster.jobs.states import a_job_in_state, jobs, put
from tests.e2e.cluster.jobs.words import (
    DIRECTIVES,
    FIXED,
    GATES_ARE_ON,
    GATES_ARE_THERE,
    GROW,
    GROWN,
    MOVE,
    MOVED,
    NO_RESOURCES,
    NO_SCHEDULING,
    NOT_SUSPENDED,
    ONE_ACTIVE,
    OURS,
    RAN,
    RESIZES,
    RESOURCES,
    RUNNING,
    SCHEDULING,
    said,
    stored,
)
from tests.e2e.cluster.objects import Answer, Api, Object
from tests.e2e.cluster.product import SYSTEM, Product, apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes
from tests.quota.jobs.job_strategies import CHANGES, STATUSES, changed
from tests.quota.jobs.job_updates import DROPPABLE, Change, updated
from webhook.kube.api import JOBS, ForbiddenError
from webhook.kube.rest import RestClient, load_config
from webhook.quota.jobs import JobGate, job_update_errors
from webhook.state.feature_gates import PROBE_JOB, probe_gates
from webhook.state.well_known import DEFAULT_NAMESPACE

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Gated:
    """A control plane with some gates on, and the product on it."""

    plane: ControlPlane
    product: Product
    tenant: Tenant
    on: frozenset[str]

    def webhook(self) -> RestClient:
        """A client with the rights of the webhook that is installed."""
        path = self.plane.service_account_kubeconfig(SYSTEM, "deferred-quota-webhook")
        # its token, and calls that it would not make: not the product's name in the audit log
        return RestClient(load_config(path, environ={}), user_agent="tests")


SETTINGS: Final = {
    "resources only": frozenset({RESOURCES}),
    "scheduling only": frozenset({SCHEDULING}),
    "no gates": frozenset[str](),
    "both gates": frozenset({RESOURCES, SCHEDULING}),
}
# the same settings stand at the same places, so that each control plane is started once
some_are_off = pytest.mark.parametrize(
    "gated",
    [
        pytest.param(gates, id=name, marks=[GATES_ARE_THERE] if gates else [])
        for name, gates in list(SETTINGS.items())[:3]
    ],
    indirect=True,
)
whatever_is_on = pytest.mark.parametrize("gated", SETTINGS.values(), ids=SETTINGS, indirect=True)
DROPS: Final = {"HostnameOverride": False}
"""A gate of a field that the API server drops then; it is on where nobody says otherwise."""
TEAM: Final = "team-a"
PLAIN: Final = "plain"
"""A namespace that has not opted in, where the API server judges alone."""


@pytest.fixture(scope="module")
def gated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gated]:
    wanted = {**{str(gate): gate in request.param for gate in JobGate}, **DROPS}
    known = features.usual().gates
    gates = {name: is_on for name, is_on in wanted.items() if name in known}
    directory = tmp_path_factory.mktemp("gated")
    with (
        ControlPlane.start(directory / "plane", scheduler=False, feature_gates=gates) as plane,
        Product.start(plane, directory / "product") as product,
    ):
        apply_namespace(Api(plane.rest), PLAIN, mode="")
        apply_namespace(Api(plane.rest), TEAM)
        on = frozenset(map(str, request.param))
        yield Gated(plane, product, Tenant(plane.rest, TEAM), on)


# -- found out -----------------------------------------------------------------------------------


HIDDEN: Final = {
    "labels": f'spec.template.metadata: {FIXED}: labels.team from none to "x"',
    "annotations": f"spec.template.metadata: {FIXED}: annotations.note another value",
}
"""What the API server lets slip through, and no rule of the cluster allows."""


@some_are_off
def test_gates_that_are_off_are_found_out_and_named(gated: Gated) -> None:
    tenant = gated.tenant
    old = stored(tenant, RAN, name="ran")

    def outcome(change: Change) -> str:
        answer = put(tenant.api, updated(old, change))
        return "" if answer.ok else answer.message

    resized = "" if RESOURCES in gated.on else f"{OURS}{GROWN}: {NO_RESOURCES}"
    becomes(lambda: outcome(GROW), resized, "the resources change, or the gate is named")
    for change, field in RESIZES.values():
        assert outcome(change) == (resized and f"{OURS}{field}: {NO_RESOURCES}")
    is_on = SCHEDULING in gated.on
    for name, (change, field) in DIRECTIVES.items():
        refusal = f"{field}: {NO_SCHEDULING}"
        if RESOURCES in gated.on:  # then the API server does not compare the template's metadata
            refusal = HIDDEN.get(name, refusal)
        assert outcome(change) == ("" if is_on else f"{OURS}{refusal}")


@GATES_ARE_THERE
@some_are_off
def test_what_another_gate_decides_is_as_ever(gated: Gated) -> None:
    tenant = gated.tenant
    becomes(lambda: knows(gated), True, "the webhook has tried the gates")
    running = stored(tenant, RUNNING, suspend=False)
    reason = NOT_SUSPENDED.format(ns=TEAM)
    resizing = reason if RESOURCES in gated.on else NO_RESOURCES
    assert said(tenant, running, GROW) == f"{GROWN}: {resizing}"
    moving = reason if SCHEDULING in gated.on else NO_SCHEDULING
    assert said(tenant, running, MOVE) == f"{MOVED}: {moving}"
    begun = stored(tenant, {"active": 1}, name="begun")
    if SCHEDULING in gated.on:
        waiting = ONE_ACTIVE.format(ns=TEAM).replace("train", "begun")
        assert said(tenant, begun, MOVE) == f"{MOVED}: {waiting}"
    else:
        assert put(tenant.api, updated(begun, MOVE)).ok, "open until it has started"


def knows(gated: Gated) -> bool:
    """Whether the webhook has tried the gates: it names the one that is off."""
    name = "probing"
    path = jobs(TEAM, name)
    if not gated.tenant.api.get(path).ok:
        stored(gated.tenant, RAN, name=name)
    old = gated.tenant.api.get(path).body
    changes = (GROW, MOVE)
    messages = [put(gated.tenant.api, updated(old, change)).message for change in changes]
    return any("feature gate" in message for message in messages)


@GATES_ARE_THERE
@some_are_off
def test_the_rights_of_the_webhook_suffice_and_are_no_more(gated: Gated) -> None:
    client = gated.webhook()
    try:
        assert probe_gates(client, DEFAULT_NAMESPACE) == gated.on
        other = {"metadata": {"name": "other", "namespace": SYSTEM}, "spec": {}}
        with pytest.raises(ForbiddenError):
            client.create(JOBS, other, dry_run=True)
        with pytest.raises(ForbiddenError):
            client.patch(JOBS, "other", {"spec": {"suspend": False}}, namespace=SYSTEM)
        with pytest.raises(ForbiddenError):
            client.patch(JOBS, PROBE_JOB, {"spec": {}}, namespace=TEAM)
        with pytest.raises(ForbiddenError):
            client.delete(JOBS, PROBE_JOB, namespace=SYSTEM)
    finally:
        client.close()
    probe = gated.tenant.api.get(jobs(SYSTEM, PROBE_JOB)).body
    assert probe["spec"]["suspend"] is True
    assert "nodeSelector" not in probe["spec"]["template"]["spec"]
    assert not gated.tenant.api.get(f"/api/v1/namespaces/{SYSTEM}/pods").body["items"]


@GATES_ARE_THERE
@some_are_off
def test_without_the_right_nothing_is_refused_that_some_setting_allows(gated: Gated) -> None:
    tenant, (webhook,) = gated.tenant, gated.product.webhooks
    binding = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/rolebindings"
    name = "deferred-quota-webhook"
    kept = tenant.api.get(f"{binding}/{name}").body
    assert tenant.api.delete(f"{binding}/{name}").ok
    webhook.restart()
    try:
        becomes(lambda: knows(gated), False, "gates are not known")
        ran = stored(tenant, RAN, name="unknown-ran")
        begun = stored(tenant, {"active": 1}, name="unknown-begun")
        for old, change, is_legal in (
            (ran, GROW, RESOURCES in gated.on),
            (ran, MOVE, SCHEDULING in gated.on),
            (begun, MOVE, SCHEDULING not in gated.on),
        ):
            answer = put(tenant.api, updated(old, change))
            assert answer.ok == is_legal, str(answer)
            assert OURS not in answer.message
        running = stored(tenant, RUNNING, suspend=False, name="unknown-running")
        reason = NOT_SUSPENDED.format(ns=TEAM).replace("train", "unknown-running")
        assert said(tenant, running, GROW) == f"{GROWN}: {reason}"
    finally:
        kept["metadata"] = {"name": name, "labels": kept["metadata"]["labels"]}
        assert tenant.api.create(binding, kept).ok
        webhook.restart()


@GATES_ARE_ON
def test_both_gates_are_found_to_be_on(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    client = Gated(plane, product, tenant, frozenset()).webhook()
    try:
        assert probe_gates(client, DEFAULT_NAMESPACE) == {RESOURCES, SCHEDULING}
    finally:
        client.close()


# -- told ----------------------------------------------------------------------------------------

UPDATES: Final = 180
"""For each combination of gates."""
LENIENT: Final = dict.fromkeys(
    (
        "claims",
        "templateMetadata",
        "podReplacementPolicy",
        "terminating",
        "neverFits",
        "unsuspend",
    ),
    "Allow",
)
"""A rule that wants nothing beyond what the API server does."""


@pytest.fixture(scope="class")
def told(gated: Gated) -> Iterator[None]:
    """Tell the webhook the gates, and let it want nothing beyond what the API server does."""
    gates = {str(gate): gate in gated.on for gate in JobGate}
    with configured(gated.product, jobGates=gates, jobs=[LENIENT]):
        yield


@GATES_ARE_ON  # 1.35 has other rules for Jobs that never ran, where its gates are switched on
@whatever_is_on
@pytest.mark.usefixtures("told")
class TestTold:
    def test_gates_that_are_off_are_named(self, gated: Gated) -> None:
        tenant = gated.tenant
        ran = stored(tenant, RAN, name="told-ran")
        for change, field, gate, refusal in (
            (GROW, GROWN, RESOURCES, NO_RESOURCES),
            (MOVE, MOVED, SCHEDULING, NO_SCHEDULING),
        ):
            if gate in gated.on:
                answer = put(tenant.api, updated(ran, change))
                assert answer.ok, str(answer)
            else:
                assert said(tenant, ran, change) == f"{field}: {refusal}"
        new = stored(tenant, {}, name="told-new")
        assert put(tenant.api, updated(new, MOVE)).ok

    def test_random_updates_are_judged_as_the_api_server_judges_them(
        self, gated: Gated, capsys: pytest.CaptureFixture[str]
    ) -> None:
        api, gates = gated.tenant.api, gated.on
        chance = random.Random(len(gates) * 7 + 1)  # noqa: S311
        pairs = [
            _stored_twice(api, f"job-{number}-{suspend}".lower(), status, suspend=suspend)
            for number, status in enumerate(STATUSES)
            for suspend in (True, False)
        ]
        taken, told, differences = 0, 0, []
        for _ in range(UPDATES):
            old, guarded = chance.choice(pairs if chance.random() < 0.25 else pairs[::2])
            changes = chance.sample(CHANGES, chance.choice([1, 1, 1, 1, 2, 2, 3]))
            new = changed(old, changes)
            answer, through = put(api, new), put(api, changed(guarded, changes))
            assert answer.code in (200, 422), str(answer)
            taken += answer.ok
            told += through.message.startswith(OURS)
            errors = [str(each) for each in job_update_errors(old, new, gates)]
            if answer.ok == bool(errors) or through.code != answer.code:
                differences.append(_difference(old, new, answer, [*errors, f"handler: {through}"]))
        with capsys.disabled():
            on = ", ".join(sorted(gates)) or "none"
            print(
                f"\ngates: {on}: {UPDATES} updates, {taken} taken, {told} refused in our words,"
                f" {len(differences)} differ"
            )
        assert not differences, "\n\n".join(differences[:5])
        assert UPDATES / 15 < taken < UPDATES * 9 / 10, "one verdict hardly occurs"
        assert told == UPDATES - taken, "what nobody drops is refused in our words"

    def test_what_the_api_server_may_drop_is_judged_by_it_alone(
        self, gated: Gated, capsys: pytest.CaptureFixture[str]
    ) -> None:
        api = gated.tenant.api
        pairs = [
            _stored_twice(api, f"drops-{number}", STATUSES[number], suspend=suspend)
            for number, suspend in ((0, True), (7, False))
        ]
        taken, differences = [], []
        for name, change in DROPPABLE.items():
            for old, guarded in pairs:
                new = changed(old, [change])
                if new == old:  # it has nothing that could be changed so
                    continue
                answer, through = put(api, new), put(api, changed(guarded, [change]))
                taken += [name] if answer.ok else []
                if (answer.code, answer.ok) != (through.code, through.ok):
                    differences.append(f"{name}: {answer}\n{through}")
        with capsys.disabled():
            print(f"\ntaken, because it was dropped: {', '.join(dict.fromkeys(taken))}")
        assert not differences, "\n\n".join(differences[:5])
        assert {"a scheduling group", "a host name", "a stop signal, alone in a lifecycle"} <= {
            *taken
        }


def _stored_twice(api: Api, name: str, status: Object, *, suspend: bool) -> tuple[Object, Object]:
    """Store the same Job where nobody looks and where we do."""
    there, here = (
        a_job_in_state(api, namespace, name, status, suspend=suspend) for namespace in (PLAIN, TEAM)
    )
    return there, here


def _difference(old: Object, new: Object, answer: Answer, errors: list[str]) -> str:
    changes = {
        key: (old["spec"].get(key), value)
        for key, value in new["spec"].items()
        if old["spec"].get(key) != value
    }
    return f"status {old.get('status')}\nchanged {changes}\nAPI server: {answer}\nwe: {errors}"
