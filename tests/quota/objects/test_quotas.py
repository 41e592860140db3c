from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256

import pytest

from tests.builders import Object, a_quota, an_expression
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.objects.model import ResourceQuota, ScopeExpression


def test_every_field_is_read() -> None:
    raw = a_quota(
        "p1",
        namespace="team-b",
        uid="u1",
        hard={"pods": "3"},
        used={"pods": "1"},
        scopes=["Terminating"],
        expressions=[an_expression("PriorityClass", "In", "high", "low")],
        metadata={"resourceVersion": "7", "annotations": {"a": "b"}},
    )

    assert ResourceQuota.from_object(raw) == ResourceQuota(
        namespace="team-b",
        name="p1",
        uid="u1",
        resource_version="7",
        annotations={"a": "b"},
        hard={"pods": Quantity.parse("3")},
        scopes=("Terminating",),
        expressions=(ScopeExpression("PriorityClass", "In", ("high", "low")),),
        status_hard={"pods": Quantity.parse("3")},
        status_used={"pods": Quantity.parse("1")},
    )


@pytest.mark.parametrize(
    "raw", [{}, {"metadata": None, "spec": {"scopeSelector": None, "hard": None}, "status": None}]
)
def test_absent_and_null_fields_are_empty(raw: Object) -> None:
    assert ResourceQuota.from_object(raw) == ResourceQuota("", "", "", "", {}, {}, (), (), {}, {})


def test_an_expression_is_read_alone() -> None:
    raw = an_expression("PriorityClass", "NotIn", "high")

    assert ScopeExpression.from_object(raw) == ScopeExpression("PriorityClass", "NotIn", ("high",))


def test_the_key_has_namespace_and_name() -> None:
    assert ResourceQuota.from_object(a_quota("p1", namespace="team-b")).key == "team-b/p1"


def spec_hash(raw: Object) -> str:
    return ResourceQuota.from_object(raw).spec_hash


BASE = a_quota(
    hard={"cpu": "1", "pods": "3"},
    scopes=["Terminating", "NotBestEffort"],
    expressions=[an_expression("PriorityClass", "In", "a", "b"), an_expression("Terminating")],
)

SAME: dict[str, Object] = {
    "amounts written differently, in another order": a_quota(
        hard={"pods": "3.0", "cpu": "1000m"},
        scopes=["Terminating", "NotBestEffort"],
        expressions=[
            an_expression("PriorityClass", "In", "a", "b"),
            an_expression("Terminating"),
        ],
    ),
    "scopes in another order and twice": a_quota(
        hard={"cpu": "1", "pods": "3"},
        scopes=["NotBestEffort", "Terminating", "NotBestEffort"],
        expressions=[
            an_expression("PriorityClass", "In", "a", "b"),
            an_expression("Terminating"),
        ],
    ),
    "another name and status": {
        **BASE,
        "metadata": {"name": "other", "namespace": "other"},
        "status": {"hard": {"cpu": "9"}},
    },
}


@pytest.mark.parametrize("raw", SAME.values(), ids=SAME.keys())
def test_specs_that_mean_the_same_have_one_hash(raw: Object) -> None:
    assert spec_hash(raw) == spec_hash(BASE)


DIFFERENT: dict[str, Object] = {
    "an amount": a_quota(hard={"cpu": "1001m"}),
    "a sign": a_quota(hard={"cpu": "-1"}),
    "a key": a_quota(hard={"memory": "1"}),
    "one more key": a_quota(hard={"cpu": "1", "memory": "1"}),
    "a scope": a_quota(hard={"cpu": "1"}, scopes=["Terminating"]),
    "the scope as an expression": a_quota(
        hard={"cpu": "1"}, expressions=[an_expression("Terminating")]
    ),
    "an operator": a_quota(hard={"cpu": "1"}, expressions=[an_expression("Terminating", "In")]),
    "a value": a_quota(hard={"cpu": "1"}, expressions=[an_expression("PriorityClass", "In", "a")]),
    "the order of values": a_quota(
        hard={"cpu": "1"}, expressions=[an_expression("PriorityClass", "In", "b", "a")]
    ),
    "values run together": a_quota(
        hard={"cpu": "1"}, expressions=[an_expression("PriorityClass", "In", "a', 'b")]
    ),
    "values apart": a_quota(
        hard={"cpu": "1"}, expressions=[an_expression("PriorityClass", "In", "a", "b")]
    ),
    "nothing": a_quota(hard={}),
    "the base": a_quota(hard={"cpu": "1"}),
}


def test_specs_that_differ_have_different_hashes() -> None:
    hashes = {name: spec_hash(raw) for name, raw in DIFFERENT.items()}

    assert len(set(hashes.values())) == len(DIFFERENT)


def test_the_hash_is_the_same_in_every_process() -> None:
    imported = "from tests.quota.objects.test_quotas import BASE, spec_hash"
    program = f"{imported}; print(spec_hash(BASE), end='')"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment, check=True
    )

    assert run.stdout.decode() == spec_hash(BASE)


def test_a_stored_hash_stays_good_for_later_versions() -> None:
    # 1 cpu in nano units is 0x3b9aca00; no scopes, no expressions
    meaning = b"([('cpu', '3b9aca00')], [], [])"

    assert spec_hash(a_quota(hard={"cpu": "1"})) == sha256(meaning).hexdigest()[:32]


@pytest.mark.parametrize("amount", ["1e299", "\ud800", "-1e299"])
def test_extreme_specs_have_a_hash(amount: str) -> None:
    huge = a_quota(hard={"cpu": amount}) if "e" in amount else a_quota(scopes=[amount])

    assert len(spec_hash(huge)) == 32
