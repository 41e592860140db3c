"""The metrics, as a scrape sees them."""

from __future__ import annotations

import platform
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from webhook.telemetry.metrics import HANDLERS, OTHER, Metrics, bounded


def families(metrics: Metrics) -> dict[str, str]:
    """Name → help of every metric of the project."""
    found = text_string_to_metric_families(metrics.exposition("")[0].decode())
    return {
        family.name: family.documentation
        for family in found
        if not family.name.startswith("process_")
    }


def test_every_metric_has_the_prefix_and_says_what_it_is() -> None:
    for name, text in families(Metrics()).items():
        assert re.fullmatch(r"deferred_quota_[a-z_]+", name)
        assert text.endswith(".")


def test_times_are_in_seconds() -> None:
    names = families(Metrics())
    assert {name for name in names if re.search("duration|_age|not_after|_wait_", name)} == {
        "deferred_quota_api_request_duration_seconds",
        "deferred_quota_claim_wait_seconds",
        "deferred_quota_queue_wait_seconds",
        "deferred_quota_admission_duration_seconds",
        "deferred_quota_cache_age_seconds",
        "deferred_quota_tls_certificate_not_after_seconds",
        "deferred_quota_tls_secret_not_after_seconds",
    }


def test_two_processes_do_not_share_counts() -> None:
    one, other = Metrics(), Metrics()
    one.controller.unguarded.inc()
    name = "deferred_quota_unguarded_binds_total"
    assert one.registry.get_sample_value(name) == 1
    assert other.registry.get_sample_value(name) == 0


def test_answers_are_sorted_into_half_a_millisecond_to_five_seconds() -> None:
    metrics = Metrics()
    metrics.admission.seconds.labels("bind", "validating", "allowed", "false").observe(0.0004)
    buckets = re.findall(
        r'duration_seconds_bucket\{.*le="([^"]+)"', metrics.exposition("")[0].decode()
    )
    assert (buckets[0], buckets[-2], buckets[-1]) == ("0.0005", "5.0", "+Inf")


def test_the_build_has_the_versions_of_program_and_python() -> None:
    metrics = Metrics()
    metrics.build.show("webhook", "1.2.3")
    labels = {"component": "webhook", "version": "1.2.3", "python": platform.python_version()}
    assert metrics.registry.get_sample_value("deferred_quota_build_info", labels) == 1


def test_counters_have_no_second_series_with_their_birth() -> None:
    assert b"_created" not in Metrics().exposition("")[0]


@pytest.mark.parametrize(
    ("value", "known", "label"),
    [("bind", HANDLERS, "bind"), ("x" * 999, HANDLERS, OTHER)],
    ids=["known", "unknown"],
)
def test_labels_come_from_closed_sets(value: str, known: frozenset[str], label: str) -> None:
    assert bounded(value, known) == label
