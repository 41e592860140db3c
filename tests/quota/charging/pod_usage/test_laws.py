from __future__ import annotations

from random import Random
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object
from tests.quota.charging.pod_usage.charges import ENDED, charge
from tests.quota.pod_strategies import NAMES, Path, amounts, damaged, pods
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.pod_usage import pod_usage, usage_of
from webhook.quota.objects.model import Pod


def containers_of(pod: Object, name: str = "containers") -> list[Object]:
    return cast("dict[str, list[Object]]", pod["spec"])[name]


def asked(container: Object, kind: str) -> dict[str, str]:
    resources = cast("dict[str, dict[str, str]]", container["resources"])
    return resources.get(kind, {})


def is_at_most(left: ResourceList, right: ResourceList) -> bool:
    return all(name in right and amount <= right[name] for name, amount in left.items())


@given(pods(), st.data(), st.sampled_from(NAMES), amounts())
def test_asking_for_more_is_never_charged_less(
    pod: Object, data: st.DataObject, resource: str, more: str
) -> None:
    lists = [each for each in ("containers", "initContainers") if containers_of(pod, each)]
    name = data.draw(st.sampled_from(lists))
    index = data.draw(st.integers(0, len(containers_of(pod, name)) - 1))
    kind = data.draw(st.sampled_from(["requests", "limits"]))
    wanted = asked(containers_of(pod, name)[index], kind)
    grown = Quantity.parse(wanted.get(resource, "0")) + Quantity.parse(more)
    place: Path = ("spec", name, index, "resources", kind)

    larger = damaged(pod, place, {**wanted, resource: str(grown)})

    assert is_at_most(pod_usage(pod), pod_usage(cast("Object", larger)))


@given(pods(), st.randoms(use_true_random=False))
def test_the_order_of_containers_does_not_matter(pod: Object, random: Random) -> None:
    shuffled = list(containers_of(pod))
    random.shuffle(shuffled)

    assert pod_usage(cast("Object", damaged(pod, ("spec", "containers"), shuffled))) == pod_usage(
        pod
    )


@given(pods(), st.sampled_from(["Succeeded", "Failed"]))
def test_pods_that_have_ended_are_only_counted(pod: Object, phase: str) -> None:
    assert charge({**pod, "status": {"phase": phase}}) == ENDED


@given(pods())
def test_requests_are_charged_alike_under_both_spellings(pod: Object) -> None:
    usage = charge(pod)

    for name in ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi"):
        assert usage.get(name) == usage.get(f"requests.{name}")


@given(pods())
def test_a_container_that_asks_for_nothing_costs_nothing(pod: Object) -> None:
    more = [*containers_of(pod), {"name": "idle"}]

    assert charge(cast("Object", damaged(pod, ("spec", "containers"), more))) == charge(pod)


@given(pods())
def test_the_charge_is_the_same_at_every_asking(pod: Object) -> None:
    read = Pod.from_object(pod)

    assert usage_of(read, now=None) == usage_of(read, now=None) == pod_usage(pod)
