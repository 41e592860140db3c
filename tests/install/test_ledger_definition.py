"""The definition of the ledger keeps all that the program writes, as it is written."""

from __future__ import annotations

from typing import Final, cast

import pytest

from tests.install.definitions import CPU, RARE_LEDGER, faults, parts
from tests.install.manifests import Manifest, the_one
from tests.quota.ledger_world.driver import STEPS, random_steps
from tests.quota.ledger_world.world import World
from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.kube.api import QUOTA_LEDGERS
from webhook.quota.ledger.ledger import Ledger, QuotaRevision
from webhook.quota.ledger.ledger_codec import ledger_status
from webhook.quota.shadow.record import (
    CREATION_COUNTS,
    POD_COUNTS,
    Fate,
    QuotaUse,
    ShadowRecord,
    UsageSpan,
    Workload,
)
from webhook.quota.shadow.record_codec import SHADOW_FIELD, shadow_status

RARE_RECORD: Final = ShadowRecord(
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00Z",
    counts=dict.fromkeys(map(str, (*CREATION_COUNTS, *POD_COUNTS)), 1),
    workloads=(Workload("Job/a", 1, Fate.WAITS, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),),
    unlisted=1,
    quotas={
        "q": QuotaUse(
            QuotaRevision("q", "uid-q", "hash"),
            "2026-01-01T00:00:00Z",
            2**40,
            {"requests.cpu": UsageSpan.of(*CPU.values(), *CPU.values(), *CPU.values())},
        )
    },
    examples={"refused": "why"},
    writers={"a": 1},
)
"""A record of shadow mode with every field that there is."""


def definition() -> Manifest:
    return the_one("CustomResourceDefinition", "quotaledgers.deferredquota.io")


def schema() -> Manifest:
    (version,) = definition()["spec"]["versions"]
    return cast("Manifest", version["schema"]["openAPIV3Schema"])


def written(ledger: Ledger) -> object:
    return decode_json(encode_json(ledger_status(ledger)))


def status_schema() -> Manifest:
    return cast("Manifest", schema()["properties"]["status"])


def test_every_record_of_shadow_mode_is_kept() -> None:
    status = {SHADOW_FIELD: shadow_status(RARE_RECORD), "summary": "shadow"}
    assert list(faults(decode_json(encode_json(status)), status_schema())) == []


@pytest.mark.parametrize("seed", range(20))
def test_every_ledger_that_comes_about_is_kept(seed: int) -> None:
    world = World()
    for step in random_steps(seed, 60):
        STEPS[step.name](world, step)
        ledger = world.storage.read_ledger()[1]
        if ledger is not None:  # else nothing is counted yet
            assert list(faults(written(ledger), status_schema())) == []


def test_rare_parts_are_kept_too() -> None:
    assert list(faults(written(RARE_LEDGER), status_schema())) == []


def test_the_check_sees_what_would_be_dropped() -> None:
    assert list(
        faults({"quotas": [{"name": 1, "other": {}}], "serial": True}, status_schema())
    ) == [
        "status.quotas[0].name: 1 is not string",
        "status.quotas[0].other: would be dropped",
        "status.serial: True is not integer",
    ]


def test_nothing_is_added_and_nothing_is_judged() -> None:
    """A default would change what was written; a rule could refuse a ledger that has to be."""
    forbidden = {"default", "pattern", "enum", "maxLength", "maxItems", "x-kubernetes-validations"}
    for part in parts(schema()):
        assert not forbidden & part.keys(), part
        if part.get("type") == "array":
            assert "x-kubernetes-list-type" in part, part


def test_names_are_those_of_the_program() -> None:
    spec = definition()["spec"]
    (version,) = spec["versions"]
    assert (spec["group"], version["name"]) == (QUOTA_LEDGERS.group, QUOTA_LEDGERS.version)
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (
        QUOTA_LEDGERS.kind,
        QUOTA_LEDGERS.plural,
    )
    assert spec["scope"] == "Namespaced"
    assert version["subresources"] == {"status": {}}


def test_columns_show_fields_that_are_there() -> None:
    (version,) = definition()["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        _, top, *path = column["jsonPath"].split(".")
        place = schema()["properties"][top]
        for name in path if top == "status" else ():
            place = place["properties"][name]
            assert place["type"] == column["type"], column
