"""Refusals in the API server's words, and for machines."""

from __future__ import annotations

import pytest

from tests.quota.parsed import amounts, expression_of
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.denials import (
    FORBIDDEN,
    Cause,
    InsufficientQuota,
    MustSpecify,
    NegativeUsage,
    QuotaExceeded,
    Refusal,
    ScopeFailure,
    StatusUnknown,
    UncoveredScopes,
    full_message,
)

GOLD = expression_of("PriorityClass", "In", "gold", "silver")
EXISTS = expression_of("PriorityClass", "Exists")

EXCEEDED = QuotaExceeded(
    "team-a",
    requested=amounts(pods="1", limits_cpu="1.500", requests_cpu="1"),
    used=amounts(requests_cpu="3", limits_cpu="1", pods="2"),
    limited=amounts(limits_cpu="2", requests_cpu="3", pods="2"),
)

CASES: dict[str, tuple[Refusal, int, str, str]] = {
    "exceeded": (
        EXCEEDED,
        403,
        "Forbidden",
        (
            'pods "p" is forbidden: exceeded quota: team-a, '
            "requested: limits.cpu=1.500,pods=1,requests.cpu=1, "
            "used: limits.cpu=1,pods=2,requests.cpu=3, "
            "limited: limits.cpu=2,pods=2,requests.cpu=3"
        ),
    ),
    "must specify": (
        MustSpecify("team-a", {"requests.cpu": ("a",), "cpu": ("a", "b")}),
        403,
        "Forbidden",
        (
            'pods "p" is forbidden: failed quota: team-a: '
            "must specify cpu for: a,b; requests.cpu for: a"
        ),
    ),
    "status unknown": (
        StatusUnknown("team-a", ("requests.cpu", "pods")),
        403,
        "Forbidden",
        'pods "p" is forbidden: status unknown for quota: team-a, resources: pods,requests.cpu',
    ),
    "insufficient": (
        InsufficientQuota(("requests.cpu", "cpu")),
        403,
        "Forbidden",
        'pods "p" is forbidden: insufficient quota to consume: cpu,requests.cpu',
    ),
    "uncovered, as the platform says it": (
        UncoveredScopes((GOLD, EXISTS)),
        500,
        "",
        (
            "insufficient quota to match these scopes: "
            "[{PriorityClass In [gold silver]} {PriorityClass Exists []}]"
        ),
    ),
    "uncovered, by a rule of ours": (
        UncoveredScopes((EXISTS,), code=FORBIDDEN),
        403,
        "Forbidden",
        (
            'pods "p" is forbidden: insufficient quota to match these scopes: '
            "[{PriorityClass Exists []}]"
        ),
    ),
    "negative": (
        NegativeUsage(("requests.cpu", "cpu")),
        403,
        "Forbidden",
        'pods "p" is forbidden: quota usage is negative for resource(s): cpu,requests.cpu',
    ),
    "scopes that cannot be evaluated": (
        ScopeFailure("team-a", GOLD, "why"),
        500,
        "",
        (
            "error matching scopes of quota team-a, err: error on matching scope "
            "{PriorityClass In [gold silver]}: why"
        ),
    ),
}


@pytest.mark.parametrize(("refusal", "code", "reason", "message"), CASES.values(), ids=CASES.keys())
def test_a_refusal_has_the_platforms_words_and_code(
    refusal: Refusal, code: int, reason: str, message: str
) -> None:
    assert (refusal.code, refusal.reason) == (code, reason)
    assert full_message(refusal, "p") == message
    assert message.endswith(refusal.message)


def test_an_exceeded_quota_has_one_cause_per_key_sorted() -> None:
    assert EXCEEDED.causes == (
        Cause("QuotaExceeded", "team-a/limits.cpu", "requested=1.500,used=1,limited=2"),
        Cause("QuotaExceeded", "team-a/pods", "requested=1,used=2,limited=2"),
        Cause("QuotaExceeded", "team-a/requests.cpu", "requested=1,used=3,limited=3"),
    )


CAUSES: dict[str, tuple[Refusal, list[tuple[str, str]]]] = {
    "must specify": (
        MustSpecify("q", {"requests.cpu": ("a",), "cpu": ("a", "b")}),
        [("MustSpecify", "q/cpu"), ("MustSpecify", "q/requests.cpu")],
    ),
    "status unknown": (
        StatusUnknown("q", ("requests.cpu", "pods")),
        [("StatusUnknown", "q/pods"), ("StatusUnknown", "q/requests.cpu")],
    ),
    "insufficient": (
        InsufficientQuota(("requests.cpu", "cpu")),
        [("InsufficientQuota", "cpu"), ("InsufficientQuota", "requests.cpu")],
    ),
    "uncovered": (
        UncoveredScopes((GOLD, EXISTS)),
        [("InsufficientQuota", "PriorityClass"), ("InsufficientQuota", "PriorityClass")],
    ),
    "negative": (NegativeUsage(("cpu",)), [("NegativeUsage", "cpu")]),
    "scope failure": (ScopeFailure("q", GOLD, "why"), [("InvalidScope", "q/PriorityClass")]),
}


@pytest.mark.parametrize(("refusal", "expected"), CAUSES.values(), ids=CAUSES.keys())
def test_every_refusal_says_what_it_is_about_for_machines(
    refusal: Refusal, expected: list[tuple[str, str]]
) -> None:
    assert [(each.reason, each.field) for each in refusal.causes] == expected
    assert all(each.message for each in refusal.causes)


def test_a_missing_amount_is_named_with_its_containers() -> None:
    causes = MustSpecify("q", {"requests.cpu": ("a",), "cpu": ("a", "b")}).causes
    assert [each.message for each in causes] == [
        "must specify cpu for: a,b",
        "must specify requests.cpu for: a",
    ]


@pytest.mark.parametrize(
    ("quota", "key", "message"),
    [
        (
            "cdq/epool.default",
            "requests.cpu",
            "elastic pool default is used up, requested: cpu=1, used: cpu=2, size: cpu=3",
        ),
        (
            "cdq/epool.gpus.0123abcd",
            "nos.nebuly.com/gpu-memory.80gb",
            (
                "elastic pool gpus is used up, requested: nos.nebuly.com/gpu-memory=1,"
                " used: nos.nebuly.com/gpu-memory=2, size: nos.nebuly.com/gpu-memory=3"
            ),
        ),
        (
            "cdq/eq.team-a.q",
            "requests.nvidia.com/gpu",
            (
                "exceeded elastic quota: eq/q, requested: nvidia.com/gpu=1, used: nvidia.com/gpu=2,"
                " max: nvidia.com/gpu=3"
            ),
        ),
        (
            "cdq/ceq.team-a.q.r",
            "requests.memory",
            (
                "exceeded elastic quota: ceq/team-a/q.r, requested: memory=1, used: memory=2,"
                " max: memory=3"
            ),
        ),
        (
            "cdq/both",
            "requests.cpu",
            (
                "exceeded quota: cdq/both, requested: requests.cpu=1, used: requests.cpu=2,"
                " limited: requests.cpu=3"
            ),
        ),
    ],
)
def test_elastic_quotas_are_named_as_their_owners_do(quota: str, key: str, message: str) -> None:
    one, two, three = ({key: Quantity.parse(text)} for text in "123")
    assert QuotaExceeded(quota, one, two, three).message == message
