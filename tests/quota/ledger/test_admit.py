"""One claim against one ledger: what is reserved, what is refused, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.ledger import (
    Account,
    Admitted,
    Claim,
    Denied,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
    Undecided,
    Verdict,
    admit,
    admit_all,
    check_observed,
    final_verdicts,
)


def amounts(**texts: str) -> ResourceList:
    return {name.replace("_", "."): Quantity.parse(text) for name, text in texts.items()}


def account(name: str, *, hard: str, used: str = "0") -> Account:
    observed = QuotaRevision(name, f"uid-{name}", "hash")
    return Account(observed, amounts(requests_cpu=hard), amounts(requests_cpu=used))


def ledger(*accounts: Account) -> Ledger:
    return Ledger({each.observed.name: each for each in accounts}, {})


def claim(
    uid: str, cpu: str, *quotas: str, source: ReservationSource = ReservationSource.BIND
) -> Claim:
    return Claim(uid, f"pod-{uid}", source, amounts(requests_cpu=cpu), quotas)


def refusal(verdict: Verdict) -> str:
    assert isinstance(verdict, Denied)
    return verdict.denial.message


def test_what_fits_exactly_is_reserved() -> None:
    following, verdict = admit(ledger(account("q", hard="2", used="1")), claim("a", "1", "q"))
    assert isinstance(verdict, Admitted)
    assert following.accounts["q"].reserved == amounts(requests_cpu="1")
    assert following.reservations["a"].charges == {"q": amounts(requests_cpu="1")}


def test_what_is_reserved_counts_against_the_next() -> None:
    following, _ = admit(ledger(account("q", hard="2", used="1")), claim("a", "1", "q"))
    same, verdict = admit(following, claim("b", "500m", "q"))
    assert same is following
    assert refusal(verdict) == (
        "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=2,"
        " limited: requests.cpu=2"
    )


def test_a_repeated_claim_is_charged_once_and_leaves_a_trace() -> None:
    first, _ = admit(ledger(account("q", hard="1")), claim("a", "1", "q"))
    second, verdict = admit(first, claim("a", "1", "q"))
    assert isinstance(verdict, Admitted)
    assert second.accounts == first.accounts
    assert second.reservations["a"].serial > first.reservations["a"].serial


def test_a_repeated_claim_is_held_to_a_limit_that_was_lowered_meanwhile() -> None:
    first, _ = admit(ledger(account("q", hard="2", used="1")), claim("a", "1", "q"))
    lowered = replace(first.accounts["q"], hard=amounts(requests_cpu="1"))
    _, verdict = admit(replace(first, accounts={"q": lowered}), claim("a", "1", "q"))
    assert refusal(verdict) == (
        "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=1,"
        " limited: requests.cpu=1"
    )


def _short(uid: str, takes: str, holds: str) -> Reservation:
    charges = {"q": amounts(requests_cpu=holds)}
    source, usage = ReservationSource.CREATE, amounts(requests_cpu=takes)
    return Reservation(uid, uid, source, usage, charges, ("q",), serial=2, is_capped=True)


@pytest.mark.parametrize(("hard", "is_admitted"), [("6", False), ("7", False), ("7500m", True)])
def test_a_repeated_claim_has_to_fit_beside_what_another_is_short_of(
    hard: str, *, is_admitted: bool
) -> None:
    """The limit was lowered while a pod was on its way that holds 1.5 since, and takes 3."""
    first, _ = admit(ledger(account("q", hard="8", used="3")), claim("a", "1500m", "q"))
    lowered = replace(
        first.accounts["q"], hard=amounts(requests_cpu=hard), reserved=amounts(requests_cpu="3")
    )
    reservations = {**first.reservations, "b": _short("b", "3", "1500m")}
    known = replace(first, accounts={"q": lowered}, reservations=reservations)
    following, verdict = admit(known, claim("a", "1500m", "q"))
    assert isinstance(verdict, Admitted) == is_admitted
    if not is_admitted:
        assert verdict == Undecided("usage is being counted for quota: q")
        assert following is known


def test_one_that_is_short_itself_is_no_other() -> None:
    known = replace(
        ledger(replace(account("q", hard="4"), reserved=amounts(requests_cpu="1"))),
        reservations={"a": _short("a", "3", "1")},
    )
    assert isinstance(admit(known, claim("a", "3", "q"))[1], Admitted)


def test_all_quotas_are_charged_or_none() -> None:
    before = ledger(account("a", hard="9"), account("b", hard="1"))
    after, verdict = admit(before, claim("x", "2", "a", "b"))
    assert after is before
    assert refusal(verdict).startswith("exceeded quota: b,")


def test_the_first_exceeded_quota_by_name_is_reported() -> None:
    full = ledger(account("b", hard="0"), account("a", hard="0"))
    assert refusal(admit(full, claim("x", "1", "b", "a"))[1]).startswith("exceeded quota: a,")


def test_a_resource_without_limit_is_reserved_and_not_compared() -> None:
    asked = Claim("a", "pod", ReservationSource.BIND, amounts(requests_memory="1Gi"), ("q",))
    following, verdict = admit(ledger(account("q", hard="0")), asked)
    assert isinstance(verdict, Admitted)
    assert following.accounts["q"].reserved == amounts(requests_memory="1Gi")


def test_a_resize_is_charged_its_growth_only() -> None:
    asked = replace(
        claim("a", "3", "q", source=ReservationSource.RESIZE),
        counted={"q": amounts(requests_cpu="1")},
    )
    fits = ledger(account("q", hard="3", used="1"))
    following, verdict = admit(fits, asked)
    assert isinstance(verdict, Admitted)
    assert following.accounts["q"].reserved == amounts(requests_cpu="2")
    assert refusal(admit(ledger(account("q", hard="3", used="2")), asked)[1]) == (
        "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=2,"
        " limited: requests.cpu=3"
    )


def test_a_resize_of_a_bound_but_uncounted_pod_adds_to_its_reservation() -> None:
    bound, _ = admit(ledger(account("q", hard="3")), claim("a", "1", "q"))
    asked = replace(
        claim("a", "3", "q", source=ReservationSource.RESIZE),
        counted={"q": amounts(requests_cpu="1")},
    )
    following, _ = admit(bound, asked)
    assert following.accounts["q"].reserved == amounts(requests_cpu="3")


def test_a_resize_that_was_asked_about_an_older_larger_pod_is_charged_from_the_stored_one() -> None:
    resize = claim("a", "5", "q", source=ReservationSource.RESIZE)
    full = ledger(account("q", hard="9", used="1"))
    stale, _ = admit(
        full, replace(resize, counted={"q": amounts(requests_cpu="3")}, base_version=7)
    )
    assert stale.accounts["q"].reserved == amounts(requests_cpu="2")
    again, _ = admit(
        stale, replace(resize, counted={"q": amounts(requests_cpu="1")}, base_version=8)
    )
    assert again.accounts["q"].reserved == amounts(requests_cpu="4")


def test_a_resource_over_its_limit_does_not_block_growth_of_another() -> None:
    observed = QuotaRevision("q", "uid-q", "hash")
    over = Account(
        observed,
        amounts(requests_cpu="4", requests_memory="1Gi"),
        amounts(requests_cpu="1", requests_memory="2Gi"),
    )
    usage = amounts(requests_cpu="2", requests_memory="2Gi")
    counted = {"q": amounts(requests_cpu="1", requests_memory="2Gi")}
    asked = Claim("a", "pod", ReservationSource.RESIZE, usage, ("q",), counted)
    assert isinstance(admit(Ledger({"q": over}, {}), asked)[1], Admitted)


def test_a_bind_is_charged_for_a_resize_that_was_admitted_before_it() -> None:
    intent = replace(
        claim("a", "3", "q", source=ReservationSource.RESIZE), is_intent=True, base_version=7
    )
    remembered, verdict = admit(ledger(account("q", hard="4", used="2")), intent)
    assert isinstance(verdict, Admitted)
    assert not remembered.accounts["q"].reserved
    _, verdict = admit(remembered, claim("a", "1", "q"))
    assert refusal(verdict).startswith("exceeded quota: q, requested: requests.cpu=3,")


def test_a_resize_of_a_pod_that_is_being_bound_is_charged() -> None:
    bound, _ = admit(ledger(account("q", hard="2")), claim("a", "1", "q"))
    intent = replace(
        claim("a", "3", "q", source=ReservationSource.RESIZE), is_intent=True, base_version=7
    )
    assert isinstance(admit(bound, intent)[1], Denied)


FORCED = {
    "there is room": ("2", "0", "2", False),
    "there is room for a part": ("3", "0", "2", True),
    "there is none": ("3", "2", "0", True),
    "more is used than the limit": ("3", "5", "0", True),
}


@pytest.mark.parametrize(("usage", "used", "charge", "is_capped"), FORCED.values(), ids=FORCED)
def test_a_claim_that_may_not_be_refused_takes_what_is_left(
    usage: str, used: str, charge: str, is_capped: bool
) -> None:
    before = ledger(account("q", hard="2", used=used))
    following, verdict = admit(before, replace(claim("a", usage, "q"), skip_limits=True))
    assert isinstance(verdict, Admitted)
    assert verdict.reservation.usage == amounts(requests_cpu=usage)
    assert verdict.reservation.charges == {"q": amounts(requests_cpu=charge)}
    assert verdict.reservation.is_capped == is_capped
    assert following.accounts["q"].reserved.get("requests.cpu", ZERO) == Quantity.parse(charge)


def test_claims_that_may_not_be_refused_take_no_more_than_the_limit_together() -> None:
    running = ledger(account("q", hard="2"))
    for number in range(1000):
        forced = replace(claim(f"u-{number}", "1", "q"), skip_limits=True)
        running, verdict = admit(running, forced)
        assert isinstance(verdict, Admitted)
    assert running.accounts["q"].reserved == amounts(requests_cpu="2")
    assert isinstance(admit(running, claim("a", "1m", "q"))[1], Denied)


def test_a_pod_of_which_a_part_is_held_is_charged_all_of_it_at_its_bind() -> None:
    forced = replace(claim("a", "3", "q"), skip_limits=True)
    running, _ = admit(ledger(account("q", hard="2")), forced)
    assert isinstance(admit(running, claim("a", "3", "q"))[1], Denied)
    wider = replace(running.accounts["q"], hard=amounts(requests_cpu="3"))
    following, verdict = admit(replace(running, accounts={"q": wider}), claim("a", "3", "q"))
    assert isinstance(verdict, Admitted)
    assert not verdict.reservation.is_capped
    assert following.accounts["q"].reserved == amounts(requests_cpu="3")


def test_a_pod_that_no_quota_applies_to_is_remembered_all_the_same() -> None:
    following, _ = admit(ledger(account("q", hard="1")), claim("a", "1"))
    assert following.reservations["a"].usage == amounts(requests_cpu="1")
    assert not following.reservations["a"].charges


def test_a_view_older_than_the_barrier_decides_nothing() -> None:
    behind = replace(ledger(account("q", hard="1")), pods_barrier=10)
    _, verdict = admit(behind, replace(claim("a", "1", "q"), observed_version=9))
    assert isinstance(verdict, Undecided)
    assert verdict.is_view_old


COUNTED = {
    "as known": (("q", "uid-q", "hash"), True),
    "another spec": (("q", "uid-q", "other"), False),
    "another object of that name": (("q", "uid-x", "hash"), False),
}


@pytest.mark.parametrize(("known", "is_counted"), COUNTED.values(), ids=COUNTED.keys())
def test_only_quotas_counted_as_known_are_decided_by(
    known: tuple[str, str, str], *, is_counted: bool
) -> None:
    reason = check_observed(ledger(account("q", hard="1")), frozenset({QuotaRevision(*known)}))
    assert (reason is None) is is_counted


def test_a_quota_unknown_to_either_side_holds_up_decisions_and_is_named() -> None:
    reason = check_observed(ledger(account("q", hard="1")), frozenset())
    assert reason == Undecided("usage is being counted for quota: q")
    assert check_observed(None, frozenset()) == Undecided(
        "the quota ledger of this namespace is not there yet"
    )


def test_claims_of_a_batch_are_decided_in_order_on_one_ledger() -> None:
    claims = [claim("a", "1", "q"), claim("b", "1", "q"), claim("c", "3", "q")]
    following, verdicts = admit_all(ledger(account("q", hard="1")), claims)
    assert [type(verdict) for verdict in verdicts] == [Admitted, Denied, Denied]
    assert set(following.reservations) == {"a"}


def test_a_refusal_that_rests_on_an_unwritten_admission_is_not_final() -> None:
    claims = [claim("a", "1", "q"), claim("b", "1", "q"), claim("c", "3", "q")]
    _, verdicts = admit_all(ledger(account("q", hard="1")), claims)
    first, second, third = final_verdicts(verdicts, is_written=False)
    assert (first, second) == (None, None)
    assert isinstance(third, Denied)
    assert final_verdicts(verdicts, is_written=True) == verdicts
