"""Lines of waiting pods from their beginning to their end, with the scheduler of Kubernetes.

Each story is played twice: as it is, and with the controller killed in the middle of it; it is
started again, and leads when the lease of the killed one is over. So it is where all pods wait
behind gates, and where those need none that find enough room. An observer follows the pods all the
time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import pytest

from tests.controlplane.features import RESIZE
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.extent import IS_SHORT
from tests.e2e.cluster.objects import GATING_LABEL, Api
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.queue.history import History
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.state.well_known import UNGATED_ANNOTATION

CREATORS: Final = 16
SMALL: Final = (250, 50, 25)
"""How many pods of a crowd there are, how many have room, and how many end."""
CROWDS: Final = {"always": SMALL if IS_SHORT else (1000, 200, 100), "auto": SMALL}
GATE_ENTRY: Final = "gate.deferredquota.io"
REGISTRATION: Final = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/deferred-quota"
)
ABOVE: Final = "above-all"
LONG: Final = 90.0
"""For what has to wait for the next leader, or for a promise to end."""

Story: TypeAlias = Callable[[Tenant, History], Iterator[None]]
"""What happens in a namespace; it yields once, in its middle."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("line-plane")) as plane:
        plane.add_nodes(4)
        above = {"metadata": {"name": ABOVE}, "value": 1_000_000}
        assert Api(plane.rest).create("/apis/scheduling.k8s.io/v1/priorityclasses", above).ok
        yield plane


@pytest.fixture(scope="module")
def own_product(
    own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    times = {"expireReservationSeconds": 35, "gateReleaseSeconds": 1}
    directory = tmp_path_factory.mktemp("line-product")
    with Product.start(
        own_plane, directory, configuration={"timeouts": times}, direct=True
    ) as product:
        # a review that is not answered in time lets a pod pass without a gate: not in these stories
        patient = {"webhooks": [{"name": GATE_ENTRY, "timeoutSeconds": 30}]}
        assert Api(own_plane.rest).patch_strategic(REGISTRATION, patient).ok
        yield product


@pytest.fixture(scope="module")
def history(own_plane: ControlPlane, own_product: Product) -> Iterator[History]:
    assert own_product.webhooks
    with History(own_plane) as following:
        yield following


def a_team(plane: ControlPlane, *, mode: str = "deferred", gating: str = "always") -> Tenant:
    name = f"line-{next(_numbers)}"
    apply_namespace(Api(plane.rest), name, mode=mode, gating=gating)
    return Tenant(plane.rest, name)


def tidy(*teams: Tenant) -> None:
    for team in teams:
        team.clear()


def create(team: Tenant, cpu: str, *names: str, **fields: Any) -> None:
    """Create pods, one after the other."""
    for name in names:
        team.pod(name, cpu, schedulerName=REAL, **fields)


def create_by_age(team: Tenant, cpu: str, *names: str) -> None:
    """Create pods of which each is older than the next, and than what is created afterwards.

    A controller that begins to lead knows of pods of one second which was changed first, no more:
    the condition of the first may have been written since.
    """
    for name in names:
        create(team, cpu, name)
        time.sleep(1.0)


def at_once(do: Callable[[str], object], names: Sequence[str]) -> None:
    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(do, names))


def gating_of(team: Tenant) -> str:
    labels = team.api.get(f"/api/v1/namespaces/{team.namespace}").body["metadata"]["labels"]
    return str(labels[GATING_LABEL])


def a_quota(team: Tenant, cpu: str) -> None:
    """Make a quota, and wait until pods need no gate where that is so."""
    team.quota(hard={"requests.cpu": cpu})
    if gating_of(team) == "auto":
        eventually(
            lambda: not gates(team.create("first", "1m", dry_run=True).body), "there is room"
        )


def let_through(team: Tenant) -> list[str]:
    """Read which pods were created without a gate."""
    pods = team.api.get(objects.pods(team.namespace)).body["items"]
    return [name_of(one) for one in pods if is_let_through(one)]


def the_rest_waits(team: Tenant, history: History) -> None:
    """Check that pods without a node are behind the gate, and that no gated pod went before them.

    A pod is ahead of another where it is older by the clock of the API server, and was stored
    first: on a busy machine seconds may lie between the two, in which nothing knows of it.
    """
    pods = team.api.get(objects.pods(team.namespace)).body["items"]
    history.catches_up(str(max(int(one["metadata"]["resourceVersion"]) for one in pods)))
    stored = history.created[team.namespace]
    rest = [pod for pod in pods if not pod["spec"].get("nodeName")]
    assert [name_of(one) for one in rest if not gates(one)] == []
    waited = [pod for pod in pods if pod["spec"].get("nodeName") and not is_let_through(pod)]
    overtaken = [
        (name_of(later), name_of(one))
        for later in waited
        for one in rest
        if made(one) < made(later) and stored[name_of(one)] < stored[name_of(later)]
    ]
    assert overtaken == []


def name_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def is_let_through(pod: dict[str, Any]) -> bool:
    return UNGATED_ANNOTATION in pod["metadata"].get("annotations", {})


def gates(pod: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def made(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["creationTimestamp"])


def pending(team: Tenant) -> int:
    """Read how many pods of the namespace wait, by the ledger."""
    return int(team.accounts()["p1"].get("pending", {}).get("pods", 0))


# -- who evicts others; first, because a crowd has to be told for a while why it waits -----


@pytest.fixture
def full_node(own_plane: ControlPlane) -> Iterator[tuple[dict[str, Any], Tenant]]:
    """A node that a pod of somebody else fills, and what selects this node."""
    (name,) = own_plane.add_nodes(1, cpu="2")
    fields = {"nodeSelector": {"kubernetes.io/hostname": name}}
    api = Api(own_plane.rest)
    label = {"metadata": {"labels": {"kubernetes.io/hostname": name}}}
    assert api.patch(f"/api/v1/nodes/{name}", label).ok
    other = a_team(own_plane, mode="")
    create(other, "2", "victim", terminationGracePeriodSeconds=0, **fields)
    eventually(lambda: other.node_of("victim"), "the node is full")
    yield fields, other
    tidy(other)
    assert api.delete(f"/api/v1/nodes/{name}").ok


def lives(team: Tenant, name: str) -> bool:
    seen = team.seen(name)
    return seen.ok and "deletionTimestamp" not in seen.body["metadata"]


OVER: Final = (
    "exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=1, limited: requests.cpu=2"
)


def test_a_pod_over_quota_behind_the_gate_evicts_no_pod(
    own_plane: ControlPlane, history: History, full_node: tuple[dict[str, Any], Tenant]
) -> None:
    fields, other = full_node
    team = a_team(own_plane)
    team.quota()
    create(team, "1", "first")
    history.waits_for(team.namespace, 1)
    create(team, "2", "high", priorityClassName=ABOVE, **fields)
    says = ("False", "QuotaExceeded", f"{OVER}; place 1 of 1")
    becomes(lambda: team.condition("high", QUOTA_RESERVED), says, "why it waits")
    assert team.condition("high")[1] == "SchedulingGated"
    assert lives(other, "victim")
    team.finish("first")  # within quota it is as ever
    eventually(lambda: team.node_of("high"), "it has the place of the other")
    assert not lives(other, "victim")
    tidy(team)


def test_without_gates_and_extender_a_pod_evicts_first_and_is_refused_then(
    own_plane: ControlPlane, history: History, full_node: tuple[dict[str, Any], Tenant]
) -> None:
    """What a guard at the bind alone cannot prevent: preemption comes before the bind."""
    fields, other = full_node
    team = a_team(own_plane, gating="never")
    team.quota()
    create(team, "1", "first")
    history.waits_for(team.namespace, 1)
    create(team, "2", "high", priorityClassName=ABOVE, **fields)
    refusal = (
        'running Bind plugin "DefaultBinder": admission webhook "bind.deferredquota.io" denied the'
        f" request: {OVER}"
    )
    becomes(
        lambda: team.condition("high"), ("False", "SchedulerError", refusal), "what the pod says"
    )
    assert not lives(other, "victim")
    assert history.bound(team.namespace) == ["first"]
    tidy(team)


def test_no_more_pods_than_a_quota_has_room_for_wait_to_evict_others(
    own_plane: ControlPlane, history: History
) -> None:
    """A gate cannot be put back: when the claim comes, others are evicted for each of them."""
    team = a_team(own_plane)
    team.quota()
    lacks = {"name": "data", "persistentVolumeClaim": {"claimName": "comes-late"}}
    late = [f"late-{number}" for number in range(4)]
    create(team, "1", *late, priorityClassName=ABOVE, volumes=[lacks])
    create(team, "1", "usual")

    def released() -> set[str]:
        pods = team.api.get(objects.pods(team.namespace)).body["items"]
        return {name_of(pod) for pod in pods if not gates(pod)}

    eventually(lambda: len(released()) == 2, "two have room")
    assert history.waits_for(team.namespace, 1) == ["usual"]  # they lost what was reserved
    first = released() - {"usual"}
    left = {*late} - first
    becomes(
        lambda: {team.condition(name, QUOTA_RESERVED)[1] for name in left},
        {"PreemptorsUnbound"},
        "why they wait",
        LONG,
    )
    assert released() == first | {"usual"}
    team.delete(first.pop())
    eventually(lambda: len(released()) == 3, "the next one goes")
    tidy(team)


@pytest.mark.needs(RESIZE)
@pytest.mark.usefixtures("own_product")
def test_a_released_pod_that_may_evict_others_takes_no_more_of_a_quota_by_a_change(
    own_plane: ControlPlane,
) -> None:
    """One after the other would be reserved for and lose that, and all would evict in the end."""
    team = a_team(own_plane)
    for name, scope in (("long", "NotTerminating"), ("short", "Terminating")):
        team.quota(name, hard={"requests.cpu": "4"}, scopes=[scope])
    lacks = {"name": "data", "persistentVolumeClaim": {"claimName": "comes-late"}}
    create(team, "1", "late", "later", priorityClassName=ABOVE, volumes=[lacks])
    create(team, "1", "usual", volumes=[lacks])
    for name in ("late", "later", "usual"):
        eventually(lambda name=name: not gates(team.seen(name).body), f"{name} is released")  # type: ignore[misc]
    moved, grown = team.set_deadline("late", 600), team.resize("later", "2")
    assert [moved.code, grown.code] == [403, 403], f"{moved}, {grown}"
    words = "may not have the pod take more of quota"
    assert f"spec.activeDeadlineSeconds: {words} short now" in moved.message
    assert f"spec.containers[*].resources: {words} long now" in grown.message
    assert team.set_deadline("usual", 600).ok
    assert team.resize("later", "500m").ok
    tidy(team)


# -- the stories ---------------------------------------------------------------------------


def a_crowd(team: Tenant, history: History) -> Iterator[None]:
    """A thousand pods and room for two hundred; a hundred end, and a hundred more come in."""
    space = team.namespace
    crowd, places, freed = CROWDS[gating_of(team)]
    room = Quantity.parse(f"{places * 10}m")
    a_quota(team, str(room))
    names = [f"p{number:04}" for number in range(crowd)]
    at_once(lambda name: create(team, "10m", name), names[: crowd // 2])
    history.waits_for(space, places // 2)
    yield
    at_once(lambda name: create(team, "10m", name), names[crowd // 2 :])
    first = history.waits_for(space, places)
    becomes(lambda: pending(team), crowd - places, "how many wait", LONG)
    assert len(history.bound(space)) == places
    the_rest_waits(team, history)
    at_once(team.finish, first[:freed])
    history.waits_for(space, places + freed)
    lag = history.binds[space][places].at - history.ends[space][0].at
    print(f"\n{space}: the next pod had its node {lag:.2f} s after the first had ended")
    becomes(lambda: pending(team), crowd - places - freed, "how many wait", LONG)
    history.catches_up(team.seen(names[-1]).version)
    assert len(history.bound(space)) == places + freed
    the_rest_waits(team, history)
    assert history.most[space] == room
    assert lag < 30  # far less where there is a processor for it


def the_last_is_first(team: Tenant, history: History) -> Iterator[None]:
    """A pod of high priority that comes last has the first place."""
    a_quota(team, "2")
    create(team, "1", "a", "b")
    history.waits_for(team.namespace, 2)
    create_by_age(team, "1", "low-0")
    create(team, "1", *(f"low-{number}" for number in range(1, 5)))
    yield
    create(team, "1", "high", priorityClassName=ABOVE)
    eventually(
        lambda: "schedulingGates" in team.seen("high").body["spec"], "it has to wait like others"
    )
    team.finish("a")
    assert history.waits_for(team.namespace, 3)[2] == "high"
    team.finish("b")
    assert history.waits_for(team.namespace, 4)[3] == "low-0"


def first_come(team: Tenant, history: History) -> Iterator[None]:
    """Of forty pods, and room for ten, the ten that came first are bound."""
    a_quota(team, "10")
    names = [f"p{number:02}" for number in range(1, 41)]
    create(team, "1", *names[:9])
    create_by_age(team, "1", *names[9:13])
    create(team, "1", *names[13:20])
    yield
    create(team, "1", *names[20:])
    assert sorted(history.waits_for(team.namespace, 10)) == names[:10]
    becomes(lambda: pending(team), 30, "how many wait", LONG)
    assert len(history.bound(team.namespace)) == 10
    for number, name in enumerate(names[10:13], 11):  # and so it goes on
        team.finish(names[number - 11])
        assert history.waits_for(team.namespace, number)[-1] == name


def a_large_one(team: Tenant, history: History) -> Iterator[None]:
    """A large pod that is the first is not starved by small ones that would fit."""
    a_quota(team, "4")
    create(team, "1", "a", "b", "c", "d")
    history.waits_for(team.namespace, 4)
    create_by_age(team, "3", "large")
    create_by_age(team, "1", "small-0")
    create(team, "1", "small-1")
    yield
    create(team, "1", "small-2")
    for name in ("a", "b", "c"):
        assert len(history.bound(team.namespace)) == 4
        team.finish(name)
    assert history.waits_for(team.namespace, 5)[4] == "large"
    team.finish("d")
    assert history.waits_for(team.namespace, 6)[5] == "small-0"
    assert history.most[team.namespace] == Quantity.parse("4")


def one_that_no_node_takes(team: Tenant, history: History) -> Iterator[None]:
    """A pod that no node takes gives its quota to the next, and is bound when there is a node."""
    team.quota()
    create(team, "2", "nowhere", nodeSelector={"example.com/zone": team.namespace})
    becomes(lambda: team.condition("nowhere")[1], "Unschedulable", "no node takes it")
    create(team, "2", "next")
    assert team.charged() == "2"
    yield
    history.waits_for(team.namespace, 1, LONG)
    assert history.bound(team.namespace) == ["next"]
    team.finish("next")
    label = {"metadata": {"labels": {"example.com/zone": team.namespace}}}
    assert team.api.patch("/api/v1/nodes/node-3", label).ok
    assert history.waits_for(team.namespace, 2) == ["next", "nowhere"]


def while_there_is_no_leader(team: Tenant, history: History) -> Iterator[None]:
    """Without a controller pods start while there is room; the others wait for the next one."""
    space, names = team.namespace, [f"p{number:02}" for number in range(1, 13)]
    a_quota(team, "8")
    yield
    for number, name in enumerate(names[:4], 1):  # the next would need more than half of the rest
        create(team, "1", name)
        assert history.waits_for(space, number)[-1] == name
    create(team, "1", *names[4:])
    gated = [name for name in names if gates(team.seen(name).body)]
    assert gated == names[-len(gated) :]
    assert len(gated) >= 5
    history.waits_for(space, len(names) - len(gated))
    yield
    assert sorted(history.waits_for(space, 8, LONG)) == names[:8]
    becomes(lambda: pending(team), 4, "how many wait", LONG)
    team.finish("p01")
    assert history.waits_for(space, 9)[-1] == "p09"
    assert history.most[space] == Quantity.parse("8")


STORIES: Final[dict[str, Story]] = {
    one.__name__: one
    for one in (
        one_that_no_node_takes,
        a_crowd,
        the_last_is_first,
        first_come,
        a_large_one,
        while_there_is_no_leader,
    )
}
SLOW, UNLED = one_that_no_node_takes.__name__, while_there_is_no_leader.__name__
PLAYED: Final = [
    (name, gating) for gating in ("always", "auto") for name in STORIES if name not in {SLOW, UNLED}
]
BEGUN: Final = [*PLAYED, (UNLED, "auto"), (SLOW, "always")]
Begun: TypeAlias = dict[tuple[str, str], Iterator[None]]


def begun(plane: ControlPlane, history: History, name: str, gating: str) -> Iterator[None]:
    """Play a story until its middle."""
    played = told(a_team(plane, gating=gating), history, name, gating)
    next(played)
    return played


def told(team: Tenant, history: History, name: str, gating: str) -> Iterator[None]:
    """Tell a story, and check in the end that gates were spared just where they may be."""
    yield from STORIES[name](team, history)
    spared = let_through(team)
    print(f"\n{team.namespace}: {len(spared)} pods were created without a gate")
    assert bool(spared) is (gating == "auto")


@pytest.fixture(scope="module")
def slow(own_plane: ControlPlane, history: History) -> Iterator[None]:
    """The story in which a promise has to end, begun before the others."""
    return begun(own_plane, history, SLOW, "always")


@pytest.fixture(scope="module")
def killed(own_plane: ControlPlane, own_product: Product, history: History) -> Begun:
    """All stories in their middle, and the controller killed there; it was started again."""
    stories = {(name, gating): begun(own_plane, history, name, gating) for name, gating in BEGUN}
    own_product.controller.kill()
    next(stories[UNLED, "auto"])
    own_product.controller.start(waits=False)
    return stories


def to_the_end(played: Iterator[None]) -> None:
    """Play the rest. The pods stay: to delete a thousand takes longer than all the rest."""
    assert next(played, "over") == "over"


# -- as it is, and again ------------------------------------------------------------------


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("name", "gating"), PLAYED)
def test_the_story(own_plane: ControlPlane, history: History, name: str, gating: str) -> None:
    to_the_end(begun(own_plane, history, name, gating))


@pytest.mark.timeout(180)
def test_the_slow_story(slow: Iterator[None]) -> None:
    to_the_end(slow)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("name", "gating"), BEGUN)
def test_the_story_with_a_controller_that_is_killed(killed: Begun, name: str, gating: str) -> None:
    to_the_end(killed[name, gating])
