"""What the checks take for shipped, and what the manifests have."""

from __future__ import annotations

from typing import Any, cast

import pytest

from webhook.install import render
from webhook.install.rendering import Mask
from webhook.jsonfields.reader import FieldReader
from webhook.operations.doctor.shipped import CONDITIONS, DIGESTS, digest, edited_conditions
from webhook.operations.names import MARKS_ENTRY, MUTATING, MUTATING_LAST, VALIDATING

CONFIGURED: dict[str, dict[str, Any]] = {
    "by default": {},
    "configured": {
        "namespace": "quota",
        "url": "https://192.0.2.7:9443",
        "deferred_resources": ["requests.nvidia.com/gpu"],
        "exempt_namespaces": ["a"],
        "trusted_users": ['o\'brien, "x" \\ y]'],
        "break_glass_groups": [],
        "gating": "never",
    },
}


@pytest.mark.parametrize("configured", CONFIGURED.values(), ids=CONFIGURED)
@pytest.mark.parametrize("mask", ["policy", "webhook"])
def test_the_digests_are_those_of_the_manifests(configured: Any, mask: Mask) -> None:
    rendered = cast("Any", render(mask=mask, stamps=True, **configured).objects)
    policies = {
        one["metadata"]["name"]: digest(FieldReader(one["spec"]))
        for one in rendered
        if one["kind"].endswith("AdmissionPolicy")
    }
    assert policies.items() <= DIGESTS.items()
    assert len(policies) == len(DIGESTS) - (mask == "webhook")
    namespace = configured.get("namespace", "deferred-quota-system")
    entries = [entry for one in rendered for entry in one.get("webhooks", [])]
    for entry in entries:
        assert not edited_conditions(entry["name"], FieldReader(entry), namespace), entry["name"]
        others = edited_conditions(entry["name"], FieldReader(entry), "another")
        assert [*others] == ["is-not-the-controller"] * (entry["name"] == MARKS_ENTRY)
    have_some = {entry["name"] for entry in entries if entry.get("matchConditions")}
    assert have_some == CONDITIONS.keys() - ({"mask.deferredquota.io"} if mask == "policy" else ())
    assert have_some <= {*MUTATING, *MUTATING_LAST, *VALIDATING}
