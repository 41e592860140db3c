"""Quotas of the proposal "Priority in ResourceQuota", turned into quotas of today."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, a_pod, a_quota, an_expression
from tests.quota.pod_strategies import damaged, json_values, places
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.charging.scopes import matches
from webhook.quota.objects.legacy_priority_lists import convert_class_list, is_resource_quota
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import label_value_error
from webhook.quota.objects.quota_validation import quota_errors


def listed(names: object, *, spelling: str = "priorityClassNameList", **spec: object) -> Object:
    """A quota with a list of priority classes; `spec` are further fields of its spec."""
    quota = a_quota(hard={"pods": "5", "requests.cpu": "2"})
    fields = quota["spec"]
    assert isinstance(fields, dict)
    return {**quota, "spec": {**fields, **spec, spelling: names}}


def spec_of(raw: Object) -> object:
    return convert_class_list(raw).quota["spec"]


def expected(*expressions: Object, **spec: object) -> Object:
    selector = {"matchExpressions": list(expressions)}
    return {"hard": {"pods": "5", "requests.cpu": "2"}, **spec, "scopeSelector": selector}


IN_GOLD = an_expression("PriorityClass", "In", "gold")
EXISTS = an_expression("PriorityClass", "Exists")
CONVERTED: dict[str, tuple[Object, Object]] = {
    "one name": (listed(["gold"]), expected(IN_GOLD)),
    "names in their order": (
        listed(["silver", "gold"]),
        expected(an_expression("PriorityClass", "In", "silver", "gold")),
    ),
    "a name twice": (listed(["gold", "gold"]), expected(IN_GOLD)),
    "any class": (listed(["*"]), expected(EXISTS)),
    "any class among names": (listed(["gold", "*", "not a label"]), expected(EXISTS)),
    "the spelling of the Go type": (
        listed(["gold"], spelling="PriorityClassNameList"),
        expected(IN_GOLD),
    ),
    "beside scopes": (
        listed(["gold"], scopes=["NotTerminating"]),
        expected(IN_GOLD, scopes=["NotTerminating"]),
    ),
    "beside a selector": (
        listed(["gold"], scopeSelector={"matchExpressions": [an_expression("Terminating")]}),
        expected(an_expression("Terminating"), IN_GOLD),
    ),
    "beside a selector that says it already": (
        listed(["gold"], scopeSelector={"matchExpressions": [IN_GOLD]}),
        expected(IN_GOLD),
    ),
    "beside a null selector": (listed(["gold"], scopeSelector=None), expected(IN_GOLD)),
}


@pytest.mark.parametrize(("raw", "spec"), CONVERTED.values(), ids=CONVERTED.keys())
def test_a_list_becomes_an_expression(raw: Object, spec: Object) -> None:
    before = copy.deepcopy(raw)
    conversion = convert_class_list(raw)
    assert conversion.quota == {**raw, "spec": spec}
    assert conversion.warnings == ()
    assert raw == before


PATH = "spec.priorityClassNameList"


@pytest.mark.parametrize("names", [[], None], ids=["empty", "null"])
def test_an_empty_list_goes_and_is_warned_of(names: object) -> None:
    conversion = convert_class_list(listed(names))
    assert conversion.quota["spec"] == {"hard": {"pods": "5", "requests.cpu": "2"}}
    assert [field for field, _ in conversion.warnings] == [PATH]


WITHOUT_LIST: dict[str, tuple[Object, bool]] = {
    "no scopes": (a_quota(), True),
    "other scopes": (a_quota(scopes=["NotTerminating"]), True),
    "an object count of pods": (a_quota(hard={"count/pods": "1"}), True),
    "a class": (a_quota(expressions=[IN_GOLD]), False),
    "no class": (a_quota(expressions=[an_expression("PriorityClass", "DoesNotExist")]), False),
    "classes as a scope": (a_quota(scopes=["PriorityClass"]), False),
    "nothing of pods": (a_quota(hard={"configmaps": "1"}), False),
    "nothing": (a_quota(hard={}), False),
    "no spec": ({"apiVersion": "v1", "kind": "ResourceQuota"}, False),
}


@pytest.mark.parametrize(("raw", "warned"), WITHOUT_LIST.values(), ids=WITHOUT_LIST.keys())
def test_a_quota_without_list_stays_and_is_warned_of_where_it_counts_pods_of_any_class(
    raw: Object, warned: bool
) -> None:
    conversion = convert_class_list(raw, field="items[2]")
    assert conversion.quota is raw
    assert [field for field, _ in conversion.warnings] == [f"items[2].{PATH}"] * warned
    for _, text in conversion.warnings:
        assert "today it counts all pods" in text
        assert "PriorityClass DoesNotExist" in text


LABEL = "a valid label must be an empty string or consist of"
BAD: dict[str, tuple[Object, str, str]] = {
    "no list": (listed("gold"), PATH, "must be a list, not a string"),
    "a number": (listed(["gold", 7]), f"{PATH}[1]", "must be a string, not a number"),
    "a number beside any class": (listed(["*", 7]), f"{PATH}[1]", "must be a string, not a number"),
    "an empty name": (listed([""]), f"{PATH}[0]", "must name a priority class"),
    "no label": (listed(["gold", "a b"]), f"{PATH}[1]", LABEL),
    "a pattern": (listed(["gold-*"]), f"{PATH}[0]", LABEL),
    "too long": (listed(["g" * 64]), f"{PATH}[0]", "must be no more than 63 bytes"),
    "both spellings": (
        listed(["gold"], PriorityClassNameList=["gold"]),
        "spec.PriorityClassNameList",
        "is the same as priorityClassNameList, give one",
    ),
    "a key that classes have nothing to do with": (
        listed(["gold"], hard={"pods": "1", "requests.storage": "1Gi"}),
        "spec.hard[requests.storage]",
        "cannot be limited for priority classes; limit it in a quota of its own",
    ),
    "an amount that is none": (
        listed(["gold"], hard={"pods": "many"}),
        "spec.hard[pods]",
        "'many' is not a quantity",
    ),
    "scopes that rule each other out": (
        listed(["gold"], scopes=["Terminating", "NotTerminating"]),
        "spec.scopes",
        "conflicting scopes",
    ),
    "a selector that is none": (
        listed(["gold"], scopeSelector=[]),
        "spec.scopeSelector",
        "must be an object, not a list",
    ),
    "a spec that is none": ({**a_quota(), "spec": []}, "spec", "must be an object, not a list"),
}


@pytest.mark.parametrize(("raw", "field", "detail"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_converted_is_named_by_its_path(
    raw: Object, field: str, detail: str
) -> None:
    for place in ("", "items[0]"):
        with pytest.raises(InvalidFieldError) as caught:
            convert_class_list(raw, field=place)
        assert caught.value.field == (f"{place}.{field}" if place else field)
        assert caught.value.detail.startswith(detail)


def test_only_the_quotas_of_the_core_api_are_quotas() -> None:
    assert is_resource_quota(a_quota())
    assert not is_resource_quota({**a_quota(), "apiVersion": "quota.example.com/v1"})
    assert not is_resource_quota(a_pod())


_NAMES = st.lists(st.sampled_from(["gold", "silver", "bronze", "*"]), min_size=1, max_size=4)


@given(names=_NAMES, pod_class=st.sampled_from(["", "gold", "silver", "other"]))
def test_a_converted_quota_counts_the_pods_that_the_list_named(
    names: list[str], pod_class: str
) -> None:
    quota = convert_class_list(listed(names)).quota
    assert quota_errors(quota) == []
    counted = pod_class != "" and ("*" in names or pod_class in names)
    pod = Pod.from_object(a_pod(priorityClassName=pod_class))
    assert matches(ResourceQuota.from_object(quota), pod) is counted


@given(names=st.lists(st.text(max_size=5) | st.just("*"), min_size=1, max_size=3))
def test_a_list_is_converted_to_what_can_be_stored_or_refused(names: list[str]) -> None:
    if "*" in names or all(name and not label_value_error(name) for name in names):
        assert quota_errors(convert_class_list(listed(names)).quota) == []
        return
    with pytest.raises(InvalidFieldError) as caught:
        convert_class_list(listed(names))
    assert caught.value.field.startswith(f"{PATH}[")


@given(data=st.data())
def test_whatever_is_wrong_has_a_path_and_nothing_else_is_raised(data: st.DataObject) -> None:
    quota = listed(["gold"], scopes=["NotTerminating"])
    found = [place for place in places(quota) if place]
    place = data.draw(st.sampled_from(sorted(found, key=str)))
    broken: Object = damaged(quota, place, data.draw(json_values()))  # type: ignore[assignment]
    error = error_of(broken)
    assert error is None or error.field.startswith("spec")


def error_of(quota: Object) -> InvalidFieldError | None:
    try:
        convert_class_list(quota)
    except InvalidFieldError as err:
        return err
    return None
