"""What grows and what shrinks in the resources of containers."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.builders import Object, a_container, a_job
from tests.quota.jobs.job_strategies import job_updates
from webhook.quota.jobs import job_update_errors
from webhook.quota.jobs.resize_diff import Resize, resizes_of

MAIN = "spec.template.spec.containers[0].resources"


def resized(before: Object, after: Object) -> list[tuple[str, str, str]]:
    jobs = [a_job(a_container(resources=resources)) for resources in (before, after)]
    return [
        (each.field.removeprefix(f"{MAIN}."), each.text, _is(each)) for each in resizes_of(*jobs)
    ]


def _is(each: Resize) -> str:
    words = {"growth": each.is_growth, "shrink": each.is_shrink, "more": each.asks_more}
    return " ".join(word for word, holds in words.items() if holds)


CASES: dict[str, tuple[Object, Object, list[tuple[str, str, str]]]] = {
    "more": (
        {"requests": {"cpu": "1"}},
        {"requests": {"cpu": "2"}},
        [("requests.cpu", "from 1 to 2", "growth more")],
    ),
    "less": (
        {"requests": {"cpu": "1"}},
        {"requests": {"cpu": "500m"}},
        [("requests.cpu", "from 1 to 500m", "shrink")],
    ),
    "another spelling": ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}}, []),
    "a request that comes": (
        {},
        {"requests": {"cpu": "1"}},
        [("requests.cpu", "from 0 to 1", "growth more")],
    ),
    "a request that goes": (
        {"requests": {"cpu": "1"}},
        {},
        [("requests.cpu", "from 1 to 0", "shrink")],
    ),
    "a limit that goes": (
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        {"requests": {"cpu": "1"}},
        [("limits.cpu", "from 2 to none", "growth")],
    ),
    "a limit that comes": (
        {"requests": {"cpu": "1"}},
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        [("limits.cpu", "from none to 2", "more")],
    ),
    "a limit that stands for the request": (
        {"limits": {"cpu": "1"}},
        {"limits": {"cpu": "2"}},
        [
            ("requests.cpu", "from 1 to 2", "growth more"),
            ("limits.cpu", "from 1 to 2", "growth more"),
        ],
    ),
    "a request that a limit stood for": (
        {"limits": {"cpu": "1"}},
        {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
        [],
    ),
    "an extended resource": (
        {},
        {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
        [
            ("requests[nvidia.com/gpu]", "from 0 to 1", "growth more"),
            ("limits[nvidia.com/gpu]", "from none to 1", "more"),
        ],
    ),
}


@pytest.mark.parametrize(("before", "after", "expected"), CASES.values(), ids=CASES.keys())
def test_says_what_becomes_of_each_amount(
    before: Object, after: Object, expected: list[tuple[str, str, str]]
) -> None:
    assert resized(before, after) == expected


def test_init_containers_are_looked_at_too() -> None:
    inits = [{"initContainers": [a_container("setup", requests={"cpu": cpu})]} for cpu in "12"]
    (resize,) = resizes_of(*(a_job(template_spec=init) for init in inits))
    assert resize.field == "spec.template.spec.initContainers[0].resources.requests.cpu"


@pytest.mark.parametrize(
    ("resource", "is_limit", "keys"),
    [
        ("cpu", False, ("cpu", "requests.cpu")),
        ("cpu", True, ("limits.cpu",)),
        ("hugepages-2Mi", False, ("hugepages-2Mi", "requests.hugepages-2Mi")),
        ("nvidia.com/gpu", False, ("requests.nvidia.com/gpu",)),
        ("nvidia.com/gpu", True, ()),
    ],
)
def test_knows_the_quota_keys_of_an_amount(
    resource: str, is_limit: bool, keys: tuple[str, ...]
) -> None:
    part = "limits" if is_limit else "requests"
    old, new = (a_job(a_container(resources={part: {resource: n}})) for n in ("2", "4"))
    found = [each for each in resizes_of(old, new) if each.is_limit == is_limit]
    assert [each.quota_keys for each in found] == [keys]


@given(job_updates())
def test_an_update_and_its_reverse_resize_the_same(
    update: tuple[Object, Object, frozenset[str]],
) -> None:
    old, new, gates = update
    if job_update_errors(old, new, gates):
        return
    there, back = resizes_of(old, new), resizes_of(new, old)
    assert [(one.field, one.before, one.after) for one in there] == [
        (one.field, one.after, one.before) for one in back
    ]
    for one, other in zip(there, back, strict=True):
        assert not (one.is_growth and one.is_shrink)
        assert not (one.is_growth and other.is_growth)
        assert one.asks_more != other.asks_more
        assert one.is_shrink <= other.is_growth
