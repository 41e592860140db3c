from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_quota
from tests.operations.jobs import NEW, OLD, World, an_order, version_of
from tests.operations.scenes import NAMESPACE, load
from tests.reactions import (
    VERSION,
    Call,
    Proceed,
    Reaction,
    VersionedClient,
    at_calls,
    conflict,
    fail,
    forbid,
    in_turn,
    lose_answer,
    preceded_by,
    then_fail,
    throttle,
    unavailable,
)
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import (
    JOBS,
    RESOURCE_QUOTAS,
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)
from webhook.operations.jobs.planning import (
    Order,
    ResizeRefusedError,
    check_on_server,
    plan_resize,
)
from webhook.operations.jobs.resizing import Resized, ResizeFailedError, resize
from webhook.operations.retry import silent


def run(
    world: World,
    order: Order | None = None,
    *,
    seconds: float = 60.0,
    report: Callable[[str], None] = silent,
) -> Resized:
    return resize(
        world.api,
        order or an_order(),
        report=report,
        patience=world.patience(seconds),
    )


def patched_paths(world: World) -> list[list[object]]:
    """Return the paths of each patch that was sent."""
    patches = world.api.calls_of("patch")
    return [[operation["path"] for operation in call.body] for call in patches]


def test_a_running_job_is_suspended_changed_and_resumed() -> None:
    world, said = World(), list[str]()
    done = run(world, report=said.append)
    assert (done.suspended, done.resumed, done.problems) == (True, True, ())
    assert world.is_new
    assert said == [
        "job team-a/train: suspended",
        "job team-a/train: waiting: status.active is 2",
        "job team-a/train: waiting: status.active is 1",
        "job team-a/train: changing its resources",
    ]


def test_resources_and_resumption_are_one_write_on_the_version_that_was_read() -> None:
    world = World()
    run(world)
    suspension, change = patched_paths(world)
    identity = ["/metadata/uid", "/metadata/resourceVersion"]
    assert suspension == [*identity, "/spec/suspend"]
    resources = "/spec/template/spec/containers/0/resources"
    assert change == [*identity, resources, "/spec/suspend"]


def test_a_job_that_was_suspended_stays_so() -> None:
    world = World(runs=False)
    done = run(world)
    assert (done.suspended, done.resumed, done.problems) == (False, False, ())
    assert (world.spec["suspend"], world.resources) == (True, NEW)


def test_a_running_job_can_be_left_suspended() -> None:
    world = World()
    done = run(world, an_order(stays_suspended=True))
    assert (done.suspended, done.resumed) == (True, False)
    assert (world.spec["suspend"], world.resources) == (True, NEW)


def test_amounts_that_are_there_already_need_no_write() -> None:
    world = World()
    before = world.cluster.resource_version
    done = run(world, an_order({"cpu": "4000m"}))
    assert done.plan.changes == ()
    assert world.cluster.resource_version == before


REFUSED = {
    "a request above its limit": (
        {"memory": "9Gi"},
        'requests: Invalid value: "9Gi": must be less than or equal to memory limit of 8Gi',
    ),
    "a negative amount": (
        {"cpu": "-1"},
        'requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
}


@pytest.mark.parametrize(("requests", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_api_server_would_refuse_costs_no_pod(
    requests: dict[str, str], words: str
) -> None:
    world = World()
    before = world.cluster.resource_version
    with pytest.raises(ResizeRefusedError) as refused:
        run(world, an_order(requests))
    field = "spec.template.spec.containers[0].resources"
    assert refused.value.problems == (f"job team-a/train: {field}.{words}",)
    assert world.cluster.resource_version == before


TOO_SMALL = (
    "job team-a/train: spec.template.spec: pods of this Job can never fit quota small: requested"
    " requests.cpu=2, limited requests.cpu=1"
)


def with_a_small_quota(world: World, **selector: Any) -> World:
    load(world.cluster, a_quota("small", hard={"requests.cpu": "1"}, **selector))
    return world


def test_no_pod_is_ended_for_pods_that_can_never_run() -> None:
    world = with_a_small_quota(World())
    before = world.cluster.resource_version
    with pytest.raises(ResizeRefusedError) as refused:
        run(world)
    assert refused.value.problems == (TOO_SMALL,)
    assert world.cluster.resource_version == before


@pytest.mark.parametrize(
    ("world", "order"),
    [
        (with_a_small_quota(World(runs=False)), an_order()),
        (with_a_small_quota(World()), an_order(stays_suspended=True)),
        (with_a_small_quota(World()), an_order({"cpu": "1"})),
        (with_a_small_quota(World(), scopes=["BestEffort"]), an_order()),
    ],
    ids=["it is suspended", "it stays suspended", "it becomes small enough", "of other pods"],
)
def test_a_small_quota_stops_nothing_where(world: World, order: Order) -> None:
    assert run(world, order).problems == ()


def test_a_user_that_may_not_see_quotas_may_resize() -> None:
    world = with_a_small_quota(World())
    world.api.on("list", RESOURCE_QUOTAS, forbid)
    assert run(world).resumed


def test_a_job_that_is_not_there_is_reported_in_the_api_servers_words() -> None:
    world = World()
    with pytest.raises(NotFoundError, match=r'jobs\.batch "other" not found'):
        run(world, Order(NAMESPACE, "other", {}))


# -- when one call fails ---------------------------------------------------------------------


def calls_of_a_resize(order: Order) -> int:
    world = World()
    run(world, order)
    return len(world.api.calls)


LAST_CALL = calls_of_a_resize(an_order())
PASSING = (lose_answer, unavailable, conflict, throttle)


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("number", range(1, LAST_CALL + 1))
def test_one_failure_at_any_step_is_met_by_reading_again(number: int, fault: Reaction) -> None:
    world = World()
    world.api.on("patch" if fault is conflict else "*", "*", at_calls([number], fault))
    done = run(world)
    assert (done.suspended, done.resumed, done.problems) == (True, True, ())
    assert world.is_new


@pytest.mark.parametrize("number", range(1, LAST_CALL + 1))
def test_a_version_that_changes_before_any_call_is_read_again(number: int) -> None:
    world = World()
    world.api.on("*", "*", at_calls([number], preceded_by(lambda _: world.annotate())))
    done = run(world)
    assert (done.suspended, done.resumed, done.problems) == (True, True, ())
    assert world.is_new


# -- when it fails for good ------------------------------------------------------------------


def refusing(world: World, *numbers: int) -> World:
    """Let the API server refuse some patches for good; the first is number 1."""
    deny = fail(ForbiddenError('admission webhook "x" denied the request: not now'))
    faults = [deny if number in numbers else None for number in range(1, max(numbers) + 1)]
    world.api.on("patch", "*", in_turn(faults))
    return world


def test_a_suspension_that_is_refused_leaves_the_job_alone() -> None:
    world = World()
    before = world.cluster.resource_version
    with pytest.raises(ForbiddenError):
        run(refusing(world, 1))
    assert world.cluster.resource_version == before


@pytest.mark.parametrize("order", [an_order(), an_order(stays_suspended=True)])
def test_a_change_that_is_refused_is_undone(order: Order) -> None:
    world = World()
    with pytest.raises(ResizeFailedError) as failed:
        run(refusing(world, 2), order)
    assert failed.value.problem == (
        "job team-a/train: changing its resources: admission webhook"
        ' "x" denied the request: not now'
    )
    undone = failed.value.undone
    assert undone.done == ("spec.suspend is false again, pods that have ended start anew",)
    assert undone.left == ()
    assert isinstance(failed.value.__cause__, ForbiddenError)
    assert world.is_old


def test_a_change_that_is_refused_leaves_a_suspended_job_as_it_was() -> None:
    world = World(runs=False)
    with pytest.raises(ForbiddenError):
        run(refusing(world, 1))
    assert (world.spec["suspend"], world.resources) == (True, OLD)


def test_what_cannot_be_undone_is_reported_with_the_command_that_does_it() -> None:
    world = World()
    with pytest.raises(ResizeFailedError) as failed:
        run(refusing(world, 2, 3))
    undone = failed.value.undone
    assert undone.done == ()
    (left,) = undone.left
    assert left == (
        "job team-a/train: spec.suspend may still be true, and the resources are the same:"
        ' admission webhook "x" denied the request: not now. Resume it: kubectl patch job train'
        ' -n team-a --type=merge -p \'{"spec":{"suspend":false}}\''
    )
    assert (world.spec["suspend"], world.resources) == (True, OLD)


def test_undoing_meets_a_conflict_by_reading_again() -> None:
    world = refusing(World(), 2)
    interfere = preceded_by(lambda _: world.annotate())
    world.api.on("patch", "*", in_turn([None, None, interfere]))
    with pytest.raises(ResizeFailedError) as failed:
        run(world)
    assert failed.value.undone.left == ()
    assert world.is_old


def test_pods_that_do_not_end_in_time_are_left_running() -> None:
    world = World()
    world.controls = False
    with pytest.raises(ResizeFailedError) as failed:
        run(world, seconds=5)
    assert failed.value.problem == (
        "job team-a/train: not suspended and idle after 5 s: status.active is 3"
    )
    assert failed.value.undone.left == ()
    assert world.is_old


def test_a_suspended_job_whose_pods_do_not_end_is_not_touched() -> None:
    world = World(runs=False)
    world.set_status(active=2, startTime="2026-06-01T12:00:00Z")
    world.controls = False
    before = world.cluster.resource_version
    with pytest.raises(ResizeRefusedError, match=r"idle after 3 s: status\.active is 2"):
        run(world, seconds=3)
    assert world.cluster.resource_version == before


@pytest.mark.parametrize("fault", [lose_answer, unavailable])
@pytest.mark.parametrize("number", range(1, LAST_CALL + 1))
@pytest.mark.parametrize("comes_back", [True, False])
def test_an_outage_at_any_step_ends_as_before_or_as_wanted_or_is_reported(
    number: int, fault: Reaction, comes_back: bool
) -> None:
    """The outage outlasts the resize; for its end the undoing waits, or in vain."""
    world = World()
    ends = world.pulse.seconds + (15 if comes_back else 10**6)

    def interrupt_service(call: Call, proceed: Proceed) -> object:
        is_out = call.number >= number and world.pulse.seconds < ends
        return fault(call, proceed) if is_out else proceed()

    world.api.on("*", "*", interrupt_service)
    ending = ending_of(world, seconds=10)
    if isinstance(ending, UnavailableError):
        assert world.is_old
    elif isinstance(ending, ResizeFailedError):
        assert isinstance(ending.__cause__, UnavailableError)
        assert bool(ending.undone.left) is not comes_back
        assert world.is_old or ending.undone.left
    else:
        assert isinstance(ending, Resized)
        assert world.is_new


def ending_of(world: World, seconds: float = 60.0) -> Resized | BaseException:
    try:
        return run(world, seconds=seconds)
    except (ApiError, ResizeFailedError, KeyboardInterrupt) as err:
        return err


# -- when it is interrupted ------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, LAST_CALL + 1))
def test_an_interruption_at_any_step_never_leaves_the_job_suspended(
    number: int, after: bool
) -> None:
    world = World()
    interrupt = then_fail(KeyboardInterrupt) if after else fail(KeyboardInterrupt)
    world.api.on("*", "*", at_calls([number], interrupt))
    ending = ending_of(world)
    if isinstance(ending, ResizeFailedError):
        assert isinstance(ending.__cause__, KeyboardInterrupt)
        assert ending.problem.endswith(": interrupted")
        assert ending.undone.left == ()
    came_too_late = isinstance(ending, Resized)
    assert world.is_new if came_too_late else world.is_old
    assert came_too_late is (number == LAST_CALL and after)


def test_a_second_interruption_ends_the_undoing_and_says_what_is_left() -> None:
    world = World()
    world.api.on("*", "*", at_calls([5, 6], fail(KeyboardInterrupt)))
    with pytest.raises(ResizeFailedError) as failed:
        run(world)
    (left,) = failed.value.undone.left
    assert "interrupted again. Resume it: kubectl patch job train -n team-a" in left
    assert (world.spec["suspend"], world.resources) == (True, OLD)


def test_an_interrupted_suspension_that_lands_late_is_undone() -> None:
    """It was on its way when the first look of the undoing saw the Job run."""
    world = World()

    def land_late(_call: Call, proceed: Proceed) -> None:
        world.events.append(proceed)
        raise KeyboardInterrupt

    world.api.on("patch", JOBS, land_late, times=1)
    with pytest.raises(ResizeFailedError):
        run(world)
    assert world.events == []
    assert world.is_old


def test_a_job_that_another_client_changed_alike_is_resumed_all_the_same() -> None:
    world = World()

    def change_and_interrupt() -> None:
        path = "/spec/template/spec/containers/0/resources"
        patch = [{"op": "replace", "path": path, "value": NEW}]
        FakeClient(world.cluster).patch(JOBS, "train", patch, namespace=NAMESPACE)
        raise KeyboardInterrupt

    world.events = [change_and_interrupt]
    with pytest.raises(ResizeFailedError):
        run(world)
    assert world.is_new


# -- when others work on it ------------------------------------------------------------------


def test_a_job_that_a_user_resumes_meanwhile_is_not_suspended_again() -> None:
    world = World()
    world.events = [lambda: world.change(suspend=False)]
    with pytest.raises(ResizeFailedError, match="another client resumed it before it was resized"):
        run(world)
    assert world.is_old


def test_a_suspended_job_that_a_user_resumes_is_not_suspended() -> None:
    world = World(runs=False)
    world.set_status(active=2)
    world.controls = False
    world.events = [lambda: world.change(suspend=False)]
    with pytest.raises(ResizeRefusedError, match="another client resumed it before it was resized"):
        run(world)
    assert world.is_old


def test_a_suspension_by_another_client_is_left_to_it() -> None:
    world = World()

    def suspend(_call: Call) -> None:
        if not world.spec["suspend"]:
            world.change(suspend=True)

    world.api.on("patch", JOBS, preceded_by(suspend))
    done = run(world)
    assert (done.suspended, done.resumed) == (False, False)
    assert done.problems == (
        "job team-a/train: spec.suspend: another client suspended it, it stays so",
    )
    assert (world.spec["suspend"], world.resources) == (True, NEW)


def test_a_job_that_is_replaced_meanwhile_is_not_touched() -> None:
    world = World()

    def replace() -> None:
        made = dict(world.job)
        world.platform.delete(JOBS, "train", namespace=NAMESPACE)
        metadata = {"name": "train", "namespace": NAMESPACE}
        FakeClient(world.cluster).create(JOBS, {**made, "metadata": metadata})

    world.events = [replace]
    with pytest.raises(ResizeFailedError, match="another Job has this name now") as failed:
        run(world)
    assert failed.value.undone.done == ("nothing: the Job is gone, another one has its name",)
    assert (world.spec["suspend"], world.resources) == (True, OLD)  # as it was made


def test_a_job_that_is_deleted_meanwhile_needs_no_undoing() -> None:
    world = World()
    world.events = [lambda: world.platform.delete(JOBS, "train", namespace=NAMESPACE)]
    with pytest.raises(ResizeFailedError) as failed:
        run(world)
    assert failed.value.undone.done == ("nothing: the Job is gone",)


def test_a_job_that_does_not_come_up_again_is_reported() -> None:
    """A queue manager suspends at once what is resumed."""

    def hold(call: Call, proceed: Proceed) -> object:
        held = [one for one in call.body if one["path"] != "/spec/suspend" or one["value"]]
        return proceed(replace(call, body=held))

    world = World()
    world.api.on("patch", JOBS, hold)
    done = run(world)
    assert done.problems == (
        "job team-a/train: spec.suspend: is true again, something holds it back",
    )
    assert not done.resumed
    assert world.resources == NEW


# -- dry runs --------------------------------------------------------------------------------


def test_the_change_of_an_idle_job_is_checked_by_the_api_server() -> None:
    world = World(runs=False)
    before = world.cluster.resource_version
    plan = plan_resize(world.api, an_order())
    assert check_on_server(world.api, plan) == "the API server accepts the change"
    with pytest.raises(ForbiddenError):
        check_on_server(refusing(world, 1).api, plan)
    assert world.cluster.resource_version == before


def test_of_a_running_job_the_suspension_is_checked_and_the_rest_by_our_rules() -> None:
    world = World()
    before = world.cluster.resource_version
    said = check_on_server(world.api, plan_resize(world.api, an_order()))
    assert said.startswith("the API server accepts the suspension. It checks a change")
    assert [patch[-1] for patch in patched_paths(world)] == ["/spec/suspend"]
    assert world.cluster.resource_version == before


def test_while_pods_end_nothing_can_be_checked() -> None:
    world = World(runs=False)
    world.set_status(active=2)
    said = check_on_server(world.api, plan_resize(world.api, an_order()))
    assert said.startswith(
        "the API server cannot check the change now, because status.active is 2, so it was"
    )


def test_a_dry_run_of_an_old_version_is_a_conflict() -> None:
    world = World(runs=False)
    plan = plan_resize(world.api, an_order())
    world.annotate()
    assert plan.facts.version != version_of(world.api)
    with pytest.raises(ConflictError):
        check_on_server(world.api, plan)


RELEASES = {"34": False, "35": False, "35+": False, "36": True, "36+": True, "37": True, "x": True}


@pytest.mark.parametrize(("minor", "is_let"), RELEASES.items())
def test_a_running_job_is_not_suspended_where_the_change_may_be_refused(
    minor: str, is_let: bool
) -> None:
    api = VersionedClient(World().cluster, minor=minor)
    if is_let:
        assert plan_resize(api, an_order()).suspends
        return
    with pytest.raises(ResizeRefusedError) as refused:
        plan_resize(api, an_order())
    assert "MutablePodResourcesForSuspendedJobs, which is on by default since 1.36" in str(
        refused.value
    )


def test_a_suspended_job_is_tried_on_any_release() -> None:
    api = VersionedClient(World(runs=False).cluster, minor="35")
    assert plan_resize(api, an_order()).changes


def test_a_release_that_cannot_be_read_stops_nothing() -> None:
    api = VersionedClient(World().cluster)
    api.on("get", VERSION, fail(ApiError("no")))
    assert plan_resize(api, an_order()).suspends
