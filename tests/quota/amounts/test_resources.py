"""Arithmetic of resource lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from tests.strategies import resource_lists
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts import resources
from webhook.quota.amounts.quantity import Format, InvalidQuantityError, Quantity
from webhook.quota.amounts.resources import ResourceList, parse_resource_list

Combine = Callable[[ResourceList, ResourceList], ResourceList]
Texts = dict[str, str]


def amounts(texts: Texts) -> ResourceList:
    return {name: Quantity.parse(text) for name, text in texts.items()}


COMBINED: dict[str, tuple[Combine, Texts, Texts, Texts]] = {
    "add: the union of names": (
        resources.add,
        {"cpu": "1", "pods": "2"},
        {"cpu": "500m", "memory": "1Gi"},
        {"cpu": "1500m", "memory": "1Gi", "pods": "2"},
    ),
    "add: a name of one side keeps its text": (
        resources.add,
        {},
        {"cpu": "1.500"},
        {"cpu": "1.500"},
    ),
    "add: the left format": (resources.add, {"m": "1Gi"}, {"m": "1M"}, {"m": "1074741824"}),
    "subtract: what only the right has becomes negative": (
        resources.subtract,
        {"cpu": "1"},
        {"cpu": "250m", "memory": "1Ki"},
        {"cpu": "750m", "memory": "-1Ki"},
    ),
    "subtract_non_negative: the union of names, never below zero": (
        resources.subtract_non_negative,
        {"cpu": "1", "memory": "1Gi", "pods": "-1"},
        {"cpu": "2", "memory": "1Mi", "storage": "-5"},
        {"cpu": "0", "memory": "1023Mi", "pods": "0", "storage": "0"},
    ),
    "max_of: the union of names": (
        resources.max_of,
        {"cpu": "1", "pods": "3"},
        {"cpu": "2", "pods": "1", "memory": "1Gi"},
        {"cpu": "2", "memory": "1Gi", "pods": "3"},
    ),
    "max_of: of equal amounts the right text": (
        resources.max_of,
        {"cpu": "1.000"},
        {"cpu": "+1"},
        {"cpu": "+1"},
    ),
}


@pytest.mark.parametrize(
    ("combine", "left", "right", "expected"), COMBINED.values(), ids=COMBINED.keys()
)
def test_combines_two_lists(combine: Combine, left: Texts, right: Texts, expected: Texts) -> None:
    assert resources.to_text(combine(amounts(left), amounts(right))) == expected


EXCEEDING: dict[str, tuple[Texts, Texts, tuple[str, ...]]] = {
    "exactly the limit does not exceed": ({"pods": "2"}, {"pods": "2"}, ()),
    "another spelling of the limit neither": ({"cpu": "1000m"}, {"cpu": "1"}, ()),
    "the smallest step does": ({"cpu": "1000000001n"}, {"cpu": "1"}, ("cpu",)),
    "what has no limit cannot exceed": ({"cpu": "9"}, {"pods": "2"}, ()),
    "a limit that is not used is not exceeded": ({}, {"pods": "-1"}, ()),
    "names are sorted bytewise": (
        {"requests.cpu": "2", "pods": "2", "limits.cpu": "2", "Z": "2"},
        {"requests.cpu": "1", "pods": "1", "limits.cpu": "1", "Z": "1"},
        ("Z", "limits.cpu", "pods", "requests.cpu"),
    ),
}


@pytest.mark.parametrize(("left", "right", "names"), EXCEEDING.values(), ids=EXCEEDING.keys())
def test_names_what_exceeds(left: Texts, right: Texts, names: tuple[str, ...]) -> None:
    assert resources.exceeding(amounts(left), amounts(right)) == names


@given(left=resource_lists(), right=resource_lists())
def test_lists_are_equal_by_names_and_amounts(left: ResourceList, right: ResourceList) -> None:
    respelled = {name: Quantity.of_nano(a.nano, Format.EXP) for name, a in left.items()}

    assert resources.equal(left, respelled)
    assert resources.equal(left, right) == resources.equal(right, left)
    if set(left) != set(right):
        assert not resources.equal(left, right)


@given(left=resource_lists(), right=resource_lists())
def test_addition_does_not_care_about_sides(left: ResourceList, right: ResourceList) -> None:
    assert resources.equal(resources.add(left, right), resources.add(right, left))


@given(left=resource_lists(), right=resource_lists())
def test_subtracting_takes_away_what_was_added(left: ResourceList, right: ResourceList) -> None:
    rest = resources.subtract(resources.add(left, right), right)

    assert resources.equal(resources.mask(rest, left), left)
    assert not resources.remove_zeros(resources.mask(rest, set(right) - set(left)))


@given(left=resource_lists(), right=resource_lists())
def test_the_maximum_is_the_least_list_above_both(left: ResourceList, right: ResourceList) -> None:
    largest = resources.max_of(left, right)

    assert set(largest) == {*left, *right}
    assert resources.exceeding(left, largest) == resources.exceeding(right, largest) == ()
    for name, amount in largest.items():
        assert amount in {left.get(name), right.get(name)}


@given(left=resource_lists(), right=resource_lists())
def test_what_fits_is_what_leaves_nothing_negative(left: ResourceList, right: ResourceList) -> None:
    shared = resources.mask(resources.subtract(right, left), set(left) & set(right))
    negative = tuple(sorted(name for name, amount in shared.items() if amount.sign < 0))

    assert resources.exceeding(left, right) == negative


@given(list_=resource_lists())
def test_the_positive_part_keeps_names_and_raises_to_zero(list_: ResourceList) -> None:
    part = resources.positive_part(list_)

    assert set(part) == set(list_)
    for name, amount in part.items():
        assert amount == max(list_[name], Quantity.of_nano(0))


@given(list_=resource_lists())
def test_zeros_can_be_removed(list_: ResourceList) -> None:
    kept = resources.remove_zeros(list_)

    assert set(list_) - set(kept) == {name for name, amount in list_.items() if not amount}
    assert all(kept[name] is list_[name] for name in kept)


@given(left=resource_lists(), right=resource_lists())
def test_no_operation_changes_its_arguments(left: ResourceList, right: ResourceList) -> None:
    before = dict(left), dict(right)
    for combine, *_ in COMBINED.values():
        combine(left, right)
    resources.mask(left, right)

    assert (left, right) == before


@pytest.mark.parametrize("names", [["cpu"], ("cpu", "pods"), {"cpu"}, {"cpu": 1}, iter(["cpu"])])
def test_a_mask_may_be_any_collection_of_names(names: list[str]) -> None:
    masked = resources.mask(amounts({"memory": "1Gi", "cpu": "1.500"}), names)

    assert resources.to_text(masked) == {"cpu": "1.500"}


def test_renders_pairs_sorted_with_their_text() -> None:
    list_ = amounts({"requests.cpu": "1.500", "pods": "1", "limits.cpu": "1000m"})

    assert resources.render(list_) == "limits.cpu=1,pods=1,requests.cpu=1.500"
    assert resources.render({}) == ""


def test_reads_a_map_of_quantities() -> None:
    read = parse_resource_list({"cpu": 2, "memory": "1Gi", "pods": None}, field="spec.hard")

    assert resources.to_text(read) == {"cpu": "2", "memory": "1Gi", "pods": "0"}


def test_null_is_an_empty_map() -> None:
    assert resources.equal(parse_resource_list(None, field="spec.hard"), {})


BAD_AMOUNTS = {
    "a plain name": ("pods", "spec.hard.pods"),
    "a name with dots": ("requests.cpu", "spec.hard[requests.cpu]"),
    "a name with a domain": ("nvidia.com/gpu", "spec.hard[nvidia.com/gpu]"),
}


@pytest.mark.parametrize(("name", "field"), BAD_AMOUNTS.values(), ids=BAD_AMOUNTS.keys())
def test_a_bad_amount_is_named_by_its_path(name: str, field: str) -> None:
    with pytest.raises(InvalidQuantityError) as caught:
        parse_resource_list({"memory": "1Gi", name: "2x"}, field="spec.hard")

    assert caught.value.field == field
    assert caught.value.text == "2x"
    assert str(caught.value).startswith(f"{field}: '2x' is not a quantity: ")


@pytest.mark.parametrize("raw", [[], "", "cpu=1", 0, False, {1: "1"}])
def test_what_is_not_a_map_is_refused(raw: object) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        parse_resource_list(raw, field="spec.hard")

    assert caught.value.field == "spec.hard"
