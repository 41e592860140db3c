"""A ledger that somebody edited by hand is brought back to what can be."""

from __future__ import annotations

import pytest

from webhook.jsonfields.fields import InvalidFieldError
from webhook.state.ledger_store import read_ledger


def stored(**status: object) -> dict[str, object]:
    return {
        "metadata": {"name": "ledger", "uid": "u", "resourceVersion": "50"},
        "status": {"podsResourceVersion": "40", "podsBarrier": "30", "reservations": "", **status},
    }


def test_versions_are_read_as_they_are() -> None:
    version = read_ledger(stored())
    assert version.ledger is not None
    assert (version.resource_version, version.uid) == (50, "u")
    assert (version.ledger.pods_resource_version, version.pods_barrier) == (40, 30)


def test_no_version_in_it_is_newer_than_the_object_itself() -> None:
    version = read_ledger(stored(podsResourceVersion="9" * 19, podsBarrier="9" * 19))
    assert version.ledger is not None
    assert (version.ledger.pods_resource_version, version.pods_barrier) == (50, 50)


@pytest.mark.parametrize("text", ["", "-1", "one", "\u0661"])
def test_a_version_that_is_none_is_refused_by_name(text: str) -> None:
    raw = stored()
    raw["metadata"] = {"uid": "u", "resourceVersion": text}
    with pytest.raises(InvalidFieldError, match=r"metadata\.resourceVersion"):
        read_ledger(raw)
