"""The parts of the check that others use with their own `used`."""

from __future__ import annotations

import pytest

from tests.quota.parsed import amounts
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.charging.evaluation import over_hard

FITS: dict[str, tuple[ResourceList, ResourceList, ResourceList]] = {
    # requested, used, hard
    "below": (amounts(cpu="1"), amounts(cpu="1"), amounts(cpu="3")),
    "exactly": (amounts(cpu="1"), amounts(cpu="1"), amounts(cpu="2")),
    "exactly, in other words": (amounts(cpu="500m"), amounts(cpu="0.5"), amounts(cpu="1e0")),
    "a key without ceiling": (amounts(memory="9"), amounts(cpu="1"), amounts(cpu="1")),
    "nothing above the ceiling": (amounts(cpu="0"), amounts(cpu="9"), amounts(cpu="1")),
    "another key above its ceiling": (
        amounts(cpu="1"),
        amounts(cpu="0", memory="9"),
        amounts(cpu="1", memory="1"),
    ),
    "nothing asked": ({}, amounts(cpu="9"), amounts(cpu="1")),
    "no ceilings": (amounts(cpu="1"), {}, {}),
    "nothing used yet": (amounts(cpu="1"), {}, amounts(cpu="1")),
}


@pytest.mark.parametrize(("requested", "used", "hard"), FITS.values(), ids=FITS.keys())
def test_what_fits_gives_no_refusal(
    requested: ResourceList, used: ResourceList, hard: ResourceList
) -> None:
    assert over_hard("q", requested, used, hard) is None


def test_a_refusal_holds_the_exceeded_keys_only() -> None:
    found = over_hard(
        "q",
        amounts(cpu="2", memory="1", pods="1", storage="9"),
        amounts(cpu="1", memory="1"),
        amounts(cpu="2", memory="2", pods="0"),
    )
    assert found == QuotaExceeded(
        "q",
        requested=amounts(cpu="2", pods="1"),
        used=amounts(cpu="1", pods="0"),
        limited=amounts(cpu="2", pods="0"),
    )


def test_amounts_differ_by_one_thousandth_of_a_byte() -> None:
    hard, used = amounts(memory="1Ei"), amounts(memory="1152921504606846975")
    assert over_hard("q", amounts(memory="1"), used, hard) is None
    assert over_hard("q", amounts(memory="1001m"), used, hard) is not None
