"""Node affinity may change where directives may; the rest of the affinity stays."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import Object
from tests.quota.jobs.job_updates import SPEC, TEMPLATE, a_stored_job, immutable, put, updated
from webhook.quota.jobs import JobGate, job_update_errors

NODE: Object = {
    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
}
OTHER_NODE: Object = {
    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 2}]}
}
POD: Object = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
}
ANTI: Object = {
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
}
ABSENT = None

CASES: Mapping[str, tuple[Object | None, Object | None, bool]] = {
    "add node affinity": (ABSENT, NODE, True),
    "change it": (NODE, OTHER_NODE, True),
    "clear it": (NODE, {}, True),
    "drop all when it was all": (NODE, ABSENT, True),
    "drop an empty affinity": ({}, ABSENT, True),
    "add an empty affinity": (ABSENT, {}, True),
    "add it beside pod affinity": (POD, POD | NODE, True),
    "clear it beside pod affinity": (POD | NODE, POD, True),
    "change it beside both others": (POD | ANTI | NODE, POD | ANTI | OTHER_NODE, True),
    "add pod affinity": (ABSENT, POD, False),
    "add pod affinity with it": (ABSENT, POD | NODE, False),
    "drop all when there was pod affinity": (POD | NODE, ABSENT, False),
    "drop pod affinity": (POD | NODE, NODE, False),
    "drop anti-affinity": (ANTI, {}, False),
    "turn affinity into anti-affinity": (POD, ANTI, False),
}


@pytest.mark.parametrize(("old", "new", "passes"), CASES.values(), ids=CASES.keys())
def test_only_node_affinity_may_change(
    old: Object | None, new: Object | None, passes: bool
) -> None:
    before = updated(a_stored_job(), put(f"{SPEC}.affinity", old))
    after = updated(a_stored_job(), put(f"{SPEC}.affinity", new))

    assert job_update_errors(before, after) == ([] if passes else [immutable(SPEC)])
    without_resources = job_update_errors(before, after, {JobGate.MUTABLE_SCHEDULING})
    assert without_resources == ([] if passes else [immutable(TEMPLATE)])


@pytest.mark.parametrize(("old", "new", "passes"), CASES.values(), ids=CASES.keys())
def test_without_the_gate_no_affinity_of_a_closed_job_may_change(
    old: Object | None, new: Object | None, passes: bool
) -> None:
    del passes
    before = updated(a_stored_job(active=1), put(f"{SPEC}.affinity", old))
    after = updated(a_stored_job(active=1), put(f"{SPEC}.affinity", new))

    assert job_update_errors(before, after) == [immutable(TEMPLATE)]
