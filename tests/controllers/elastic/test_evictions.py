"""Evictions for one claim leave time and room for those of others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from tests.controllers.elastic.objects import an_elastic_quota
from tests.reactions import Call, Proceed, ReactiveClient, fail, for_name, in_namespace
from webhook.config import ReclaimSettings
from webhook.controllers.elastic.evictions import Evictor
from webhook.controllers.elastic.reclaim_planner import PlannedClaim
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    PODS,
    ApiError,
    BadRequestError,
    ListOptions,
    NotFoundError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from webhook.quota.elastic.balance import Claim, Queued, Shortage
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_elastic_quota
from webhook.quota.elastic.reclaim_plan import Plan

CPU: Final = 10**9
EPOCH: Final = 1


class Evicting:
    """An evictor on a cluster with a hundred pods of a borrower."""

    def __init__(self, *, limit: int = 60) -> None:
        cluster = FakeCluster()
        api = FakeClient(cluster)
        self.client = ReactiveClient(cluster)
        self.pods: list[ElasticPod] = []
        self.others: list[ElasticPod] = []
        """Pods of another borrower."""
        for number in range(110):
            namespace = "borrower" if number < 100 else "other"
            raw: dict[str, object] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}", "namespace": namespace},
                "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
            }
            made = api.create(PODS, raw)
            pod = ElasticPod(namespace, f"p{number}", made.uid, None, 0, {"cpu": CPU})
            (self.pods if number < 100 else self.others).append(pod)
        self.clock = 1000.0
        self.quotas: dict[str, ElasticQuota] = {}
        self.gone: set[str] = set()
        """Uids of pods that wait no more."""
        leadership = Leadership(lambda: EPOCH, lambda: None)
        leadership.current_epoch()
        self.evictor = Evictor(
            ControllerContext(api=self.client, timings=ControllerTimings(clock=lambda: self.clock)),
            leadership,
            lambda: self.quotas,
            lambda: ReclaimSettings(max_evictions_per_minute=limit),
            lambda uid: uid not in self.gone,
        )

    def evict(
        self, owner: str, victims: slice, pod: str = "waits", others: slice = slice(0)
    ) -> int:
        """Evict pods for an owner, and return how many of all have been evicted just now.

        Args:
            others: Victims of the other borrower, which come first.
        """
        claim = self.planned(owner, (*self.others[others], *self.pods[victims]), pod)
        before = len(self.evictor.evicted())
        self.evictor.evict(claim, EPOCH)
        return len(self.evictor.evicted()) - before

    def planned(
        self, owner: str, victims: tuple[ElasticPod, ...], pod: str = "waits"
    ) -> PlannedClaim:
        """Return a claim of an owner on what some pods take."""
        quota = _quota(owner)
        waiting = ElasticPod(owner, pod, f"{owner}-{pod}", None, 0, {"cpu": CPU})
        plan = Plan(Shortage(), True, Claim.OWN, victims)
        return PlannedClaim(Queued(quota.key, waiting), quota, plan, judges_nodes=False)

    def uids(self, namespace: str) -> list[str]:
        """Return the uids of the pods of a namespace that are not ending."""
        pods = self.client.list(PODS, ListOptions(namespace=namespace)).items
        metadata = [FieldReader(one).child("metadata") for one in pods]
        return [one.text("uid") for one in metadata if not one.has("deletionTimestamp")]

    def takes(self, seconds: float) -> None:
        """Have each eviction take some time."""

        def slow(_call: Call, proceed: Proceed) -> object:
            self.clock += seconds
            return proceed()

        self.client.on("create", PODS, slow, subresource="eviction")


def _quota(owner: str) -> ElasticQuota:
    return read_elastic_quota(cast("Any", an_elastic_quota(owner, {"cpu": "4"})))


def test_a_quota_leaves_evictions_to_others() -> None:
    here = Evicting(limit=8)
    names = ["greedy", "owner", "another", "fourth"]
    here.quotas = {name: _quota(name) for name in names}
    assert here.evict("greedy", slice(0, 50)) == 3, "its own, and half of what is shared"
    assert here.evict("greedy", slice(3, 50)) == 0
    assert here.evict("owner", slice(50, 100)) == 2
    assert here.evict("another", slice(60, 100)) == 2
    assert here.evict("fourth", slice(70, 100)) == 1
    assert here.evict("fourth", slice(80, 100)) == 0, "no more than eight in all"
    here.clock += 61
    assert here.evict("greedy", slice(3, 50)) == 3


def test_a_tenant_with_many_quotas_leaves_evictions_to_others() -> None:
    here = Evicting()
    mine = [f"mine-{number}" for number in range(9)]
    here.quotas = {name: _quota(name) for name in (*mine, "owner")}
    evicted = [here.evict(name, slice(number * 10, 90)) for number, name in enumerate(mine)]
    assert sum(evicted) <= 57
    assert here.evict("owner", slice(97, 100)) == 3, "a twentieth of all is for each of ten"


def test_of_more_quotas_than_evictions_the_first_leave_some() -> None:
    here = Evicting(limit=5)
    here.quotas = {f"q{number}": _quota(f"q{number}") for number in range(20)}
    evicted = [here.evict(f"q{number}", slice(number * 3, 50)) for number in range(6)]
    assert evicted == [2, 2, 1, 0, 0, 0]


def test_one_eviction_in_a_minute_may_be_of_any_quota() -> None:
    here = Evicting(limit=1)
    assert here.evict("owner", slice(0, 2)) == 1
    assert here.evict("another", slice(2, 4)) == 0


def test_a_claim_with_very_many_victims_leaves_time_for_others() -> None:
    here = Evicting(limit=1000)
    here.takes(0.5)
    assert here.evict("greedy", slice(0, 50)) == 5


def test_pods_of_one_group_go_together_however_long_that_takes() -> None:
    here = Evicting(limit=1000)
    here.takes(0.5)
    here.pods[2:20] = [replace(pod, group="gang") for pod in here.pods[2:20]]
    assert here.evict("owner", slice(0, 50)) == 20


def _gang(here: Evicting, pods: slice, name: str = "gang") -> None:
    here.pods[pods] = [replace(pod, group=name) for pod in here.pods[pods]]


def _gangs_of_five(here: Evicting, begins: Iterable[int]) -> None:
    for at in begins:
        _gang(here, slice(at, at + 5), f"g{at}")


def test_of_groups_beyond_a_share_one_goes_in_a_minute() -> None:
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("owner", "another")}
    _gang(here, slice(2, 7))
    assert here.evict("owner", slice(0, 7)) == 7, "all of the group, though two are left"
    here.pods[10:15] = [replace(pod, group="other") for pod in here.pods[10:15]]
    assert here.evict("another", slice(10, 15)) == 0
    assert here.evict("another", slice(20, 50)) == 3, "which the group has taken nothing of"
    here.clock += 61
    assert here.evict("another", slice(10, 15)) == 5


def test_of_groups_beyond_a_share_that_of_a_quota_goes_which_had_none() -> None:
    """A tenant with two quotas makes pods again that are evicted for it, and is there first."""
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("greedy", "too", "owner")}
    _gangs_of_five(here, range(0, 100, 5))
    assert here.evict("greedy", slice(0, 5)) == 5
    here.clock += 61
    assert here.evict("too", slice(5, 10)) == 5
    assert here.evict("owner", slice(50, 55)) == 0
    here.clock += 61
    assert here.evict("greedy", slice(10, 15)) == 0
    assert here.evict("too", slice(10, 15)) == 0
    assert here.evict("owner", slice(50, 55)) == 5
    here.clock += 61
    assert here.evict("too", slice(10, 15)) == 0, "the other one waits longer"
    assert here.evict("greedy", slice(10, 15)) == 5


def test_a_quota_that_has_used_its_share_keeps_no_group_of_others_from_going() -> None:
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("greedy", "owner")}
    _gangs_of_five(here, (50, 55))
    assert here.evict("owner", slice(50, 55)) == 5
    here.clock += 50
    assert here.evict("greedy", slice(0, 50)) == 3
    here.clock += 61
    assert here.evict("greedy", slice(3, 50)) == 4
    assert here.evict("owner", slice(55, 60)) == 5


def test_a_group_that_is_never_evicted_keeps_no_group_of_others_from_going() -> None:
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("greedy", "owner")}
    _gangs_of_five(here, (0, 50, 55))
    refused = TooManyRequestsError("the disruption budget does not allow it")
    for number in range(5):
        name = for_name(f"p{number}", fail(refused))
        here.client.on("create", PODS, name, subresource="eviction")
    assert here.evict("owner", slice(50, 55)) == 5
    assert here.evict("greedy", slice(0, 5)) == 0
    here.clock += 61
    assert here.evict("greedy", slice(0, 5)) == 0
    assert here.evict("owner", slice(55, 60)) == 5


def test_a_quota_that_does_not_ask_any_more_keeps_no_group_from_going() -> None:
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("greedy", "owner")}
    _gangs_of_five(here, range(0, 100, 5))
    assert here.evict("greedy", slice(0, 5)) == 5
    assert here.evict("owner", slice(50, 55)) == 0
    here.clock += 91
    assert here.evict("greedy", slice(5, 10)) == 5


def test_a_pod_that_is_gone_keeps_no_group_from_going() -> None:
    """Its creator could ask for it just before each minute is over, and take it away."""
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("greedy", "owner")}
    _gangs_of_five(here, range(0, 100, 5))
    assert here.evict("owner", slice(50, 55)) == 5
    here.clock += 49
    assert here.evict("greedy", slice(0, 5)) == 0
    here.gone.add("greedy-waits")
    here.clock += 12
    assert here.evict("owner", slice(55, 60)) == 5


def test_a_pod_that_is_gone_takes_no_turn_from_another_of_its_quota() -> None:
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("greedy", "owner")}
    _gangs_of_five(here, range(0, 100, 5))
    assert here.evict("greedy", slice(0, 5)) == 5
    assert here.evict("owner", slice(50, 55)) == 0
    assert here.evict("owner", slice(50, 55), pod="later") == 0
    here.gone.add("owner-later")
    here.clock += 61
    assert here.evict("greedy", slice(5, 10)) == 0
    assert here.evict("owner", slice(50, 55)) == 5


def _waiting_beside_a_group_without_an_answer() -> Evicting:
    """An evictor that got no answer for the second pod of a group, while another group waits."""
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("first", "owner", "another")}
    _gangs_of_five(here, range(0, 100, 5))
    assert here.evict("first", slice(90, 95)) == 5
    assert here.evict("another", slice(50, 55)) == 0
    here.clock += 61
    no_answer = for_name("p1", fail(RequestTimeoutError("no answer within 3 s")))
    here.client.on("create", PODS, no_answer, subresource="eviction")
    assert here.evict("owner", slice(0, 5)) == 2
    here.clock += 2
    return here


def test_the_rest_of_a_group_goes_after_an_eviction_without_an_answer() -> None:
    here = _waiting_beside_a_group_without_an_answer()
    assert here.evict("owner", slice(2, 5)) == 3
    assert here.evict("another", slice(50, 55)) == 0
    here.clock += 61
    assert here.evict("owner", slice(5, 10)) == 0, "now it is the turn of the other"
    assert here.evict("another", slice(50, 55)) == 5


def test_a_group_without_an_answer_keeps_no_other_from_going() -> None:
    here = _waiting_beside_a_group_without_an_answer()
    assert here.evict("another", slice(50, 55)) == 5


def test_a_group_without_an_answer_has_no_turn_for_ever() -> None:
    here = _waiting_beside_a_group_without_an_answer()
    assert here.evict("another", slice(50, 55)) == 5
    here.clock += 43
    assert here.evict("first", slice(80, 85)) == 0
    assert here.evict("owner", slice(1, 2)) == 1, "which is not answered again"
    here.clock += 50
    assert here.evict("owner", slice(5, 10)) == 0


def test_a_quota_whose_pods_go_within_its_share_waits_for_no_turn() -> None:
    here = Evicting(limit=8)
    here.quotas = {name: _quota(name) for name in ("greedy", "owner")}
    _gangs_of_five(here, range(50, 100, 5))
    assert here.evict("owner", slice(50, 55)) == 5
    assert here.evict("greedy", slice(90, 95)) == 0
    assert here.evict("greedy", slice(0, 1)) == 1
    here.clock += 61
    assert here.evict("owner", slice(55, 60)) == 5


def test_groups_of_many_quotas_are_not_beyond_the_limit_together() -> None:
    here = Evicting(limit=8)
    names = [f"q{number}" for number in range(8)]
    here.quotas = {name: _quota(name) for name in names}
    for number in range(8):
        group = [replace(pod, group=f"g{number}") for pod in here.pods[number * 8 : number * 8 + 8]]
        here.pods[number * 8 : number * 8 + 8] = group
    evicted = [here.evict(name, slice(at * 8, at * 8 + 8)) for at, name in enumerate(names)]
    assert sum(evicted) == 8


def test_of_very_many_quotas_one_still_has_its_part_of_the_other_half() -> None:
    here = Evicting(limit=60)
    here.quotas = {f"q{number}": _quota(f"q{number}") for number in range(60)}
    assert here.evict("q0", slice(0, 50)) == 16


def test_a_group_of_more_than_a_minutes_evictions_goes_as_the_limit_lets_it() -> None:
    here = Evicting(limit=8)
    _gang(here, slice(0, 9))
    assert 0 < here.evict("owner", slice(0, 9)) < 8


def test_an_eviction_without_an_answer_is_no_fault_of_the_api_server() -> None:
    """Evictions run out of time where a tenant writes its budget without a pause."""
    here = Evicting()
    error = RequestTimeoutError("no answer within 3 s")
    here.client.on("create", PODS, for_name("p0", fail(error)), subresource="eviction")
    uid = here.pods[0].uid
    assert here.evict("owner", slice(0, 1)) == 1, "it may be carried out yet: no other goes for it"
    assert uid in here.evictor.refused()
    here.clock += 13
    assert uid not in here.evictor.evicted(), "it was not"
    assert uid in here.evictor.refused(), "another one goes then"
    here.clock += 10
    assert uid not in here.evictor.refused()


def _shared(here: Evicting) -> None:
    """Have the borrower's quota be one of two namespaces."""
    composite = _quota("borrower")
    here.quotas = {"borrower": composite, "sibling": composite, "other": _quota("other")}


def test_a_quota_of_which_several_pods_are_refused_comes_last_for_a_minute() -> None:
    """Not the namespace: a composite has many, and one pod that is refused stops no other."""
    here = Evicting()
    _shared(here)
    refused = fail(TooManyRequestsError("the disruption budget is still being processed"))
    here.client.on("create", PODS, refused, subresource="eviction")
    assert here.evict("owner", slice(0, 2)) == 0
    here.clock += 30
    assert here.evict("owner", slice(0, 2)) == 0
    assert not here.evictor.reluctant(), "they are the same two"
    assert here.evict("owner", slice(2, 3)) == 0
    assert here.evictor.reluctant() == {"borrower", "sibling"}
    here.clock += 59
    assert here.evictor.reluctant()
    here.clock += 2
    assert not here.evictor.reluctant()
    assert here.evict("owner", slice(3, 5)) == 0
    assert not here.evictor.reluctant(), "the others are forgotten"


def test_a_quota_of_which_one_eviction_has_no_answer_comes_last_for_a_minute() -> None:
    """Each takes seconds, while a tenant writes its budget without a pause."""
    here = Evicting()
    _shared(here)
    here.client.on("create", PODS, fail(RequestTimeoutError("no answer")), subresource="eviction")
    assert here.evict("owner", slice(0, 3)) == 1, "it may be carried out yet"
    assert here.evictor.reluctant() == {"borrower", "sibling"}
    here.clock += 61
    assert not here.evictor.reluctant()


NOT_ANSWERED: Final = RequestTimeoutError("no answer within 3 s")
REFUSED: Final = TooManyRequestsError("the disruption budget is still being processed")


def _refusing(error: ApiError) -> Evicting:
    """Return an evictor of which the first plan showed that one of two borrowers refuses."""
    here = Evicting()
    _shared(here)

    def refuse(call: Call, proceed: Proceed) -> object:
        # the API server writes no budget in a dry run, and so waits for none
        if error is NOT_ANSWERED and call.dry_run:
            return proceed()
        raise error

    refuse_theirs = in_namespace("borrower", refuse)
    here.client.on("create", PODS, refuse_theirs, subresource="eviction")
    assert here.evict("owner", slice(0, 1), others=slice(1)) == (0 if error is REFUSED else 2)
    here.clock += 61
    return here


@pytest.mark.parametrize("error", [REFUSED, NOT_ANSWERED])
def test_no_pods_of_another_go_in_vain_beside_those_that_are_refused(error: ApiError) -> None:
    """A plan that needs both would begin again and again."""
    here = _refusing(error)
    for _ in range(30):
        here.evict("owner", slice(1, 2), others=slice(1, 4))
        here.clock += 7
    here.clock += 3600
    here.evict("owner", slice(2, 4), others=slice(1, 4))
    left = here.others if error is REFUSED else here.others[1:]
    assert {*here.uids("other")} == {one.uid for one in left}
    here.client.reset()
    here.clock += 61
    assert here.evict("owner", slice(4, 6), others=slice(1, 4)) == 5


def test_pods_of_another_stay_where_the_last_of_a_plan_is_refused() -> None:
    """It is found before the first goes, though no pod was ever refused."""
    here = Evicting()
    _shared(here)
    here.client.on("create", PODS, for_name("p4", fail(REFUSED)), subresource="eviction")
    assert here.evict("owner", slice(0, 5), others=slice(0, 3)) == 0
    assert here.evictor.refused() == {here.pods[4].uid}
    assert here.evict("owner", slice(5, 9), others=slice(0, 3)) == 7, "which are another plan"


@pytest.mark.parametrize(
    "unknown",
    [
        BadRequestError('admission webhook "drains.example.com" does not support dry run'),
        NotFoundError("it has ended"),
    ],
)
def test_what_a_dry_run_does_not_tell_stops_no_plan(unknown: ApiError) -> None:
    here = Evicting()
    _shared(here)

    def answer(call: Call, proceed: Proceed) -> object:
        if call.dry_run:
            raise unknown
        return proceed()

    here.client.on("create", PODS, answer, subresource="eviction")
    assert here.evict("owner", slice(0, 2), others=slice(0, 3)) == 5


def test_a_dry_run_without_an_answer_counts_as_a_refusal() -> None:
    """Else the same pod would be asked about again and again, seconds each time."""
    here = Evicting()
    _shared(here)

    def hang(call: Call, proceed: Proceed) -> object:
        if not call.dry_run:
            return proceed()
        here.clock += 3
        raise NOT_ANSWERED

    here.client.on("create", PODS, in_namespace("borrower", hang), subresource="eviction")
    assert here.evict("owner", slice(0, 2), others=slice(0, 1)) == 0
    assert here.evictor.unanswered_seconds == 3
    assert here.evictor.refused() == {here.pods[0].uid}
    assert here.evictor.reluctant() == {"borrower", "sibling"}


def test_a_plan_of_very_many_pods_is_not_asked_about_for_long() -> None:
    here = Evicting(limit=1000)
    _shared(here)
    here.takes(0.1)
    asked: list[str] = []

    def note(call: Call, proceed: Proceed) -> object:
        asked.extend([call.name] if call.dry_run else [])
        return proceed()

    here.client.on("create", PODS, note, subresource="eviction")
    assert here.evict("owner", slice(0, 100), others=slice(0, 3)) > 0, "some go"
    assert 5 < len(asked) < 20
    first = len(asked)
    here.evict("owner", slice(50, 100), others=slice(3, 6))
    assert len({*asked}) == len(asked) > first, "each is asked about once in a minute"


def test_pods_of_another_do_not_go_while_an_eviction_has_no_answer_yet() -> None:
    here = _refusing(NOT_ANSWERED)
    assert here.evict("owner", slice(1, 2)) == 1, "it may be carried out yet"
    here.clock += 1
    assert here.evict("owner", slice(0), others=slice(1, 4)) == 0, "for the same pod"
    assert here.evict("owner", slice(0), "another", others=slice(1, 2)) == 1
    here.clock += 12
    assert here.evict("owner", slice(0), others=slice(2, 4)) == 2, "which are enough by now"


def test_pods_of_another_go_where_those_that_are_refused_are_not_needed() -> None:
    here = _refusing(REFUSED)
    assert here.evict("owner", slice(1, 2), others=slice(1, 2)) == 0
    assert here.evict("owner", slice(0), others=slice(1, 3)) == 2


def test_a_group_that_does_not_go_beside_a_refused_pod_is_asked_no_turn_for() -> None:
    here = Evicting(limit=8)
    _shared(here)
    here.quotas["second"] = _quota("second")
    _gangs_of_five(here, range(50, 100, 5))
    group = [replace(one, group="big") for one in here.others[:5]]
    here.client.on("create", PODS, for_name("p0", fail(REFUSED)), subresource="eviction")
    assert here.evict("second", slice(50, 55)) == 5
    here.clock += 61
    asks = here.planned("owner", (here.pods[0], *group))
    assert not here.evictor.evict(asks, EPOCH)
    assert here.evictor.may_begin(asks)
    assert here.evict("second", slice(55, 60)) == 5
