"""Series with which each alert fires, and others with which it does not, for `promtool test rules`.

Values are promtool's: `0+1x60` is a counter that rises by one each minute, for an hour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

RISES: Final = "0+60x120"
STAYS: Final = "60x120"
ABSENT: Final = "_x120"
EVALUATED: Final = "60m"
DAY: Final = 86400

_BIND: Final = 'name="bind.deferredquota.io"'
_OTHER_WEBHOOK: Final = 'name="bind.example.com"'
_REJECTED: Final = "apiserver_admission_webhook_rejection_count"
_OPEN: Final = "apiserver_admission_webhook_fail_open_count"
_SLOW: Final = "apiserver_admission_webhook_admission_duration_seconds_bucket"
_REVIEWS: Final = "deferred_quota_admission_requests_total"
_CALLS: Final = "deferred_quota_api_requests_total"

Series = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """What an alert fires with, and what it does not fire with."""

    fires: Series
    quiet: Series
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the alert that fires, besides its severity."""
    value: str = ""
    """Its value as its text has it."""

    def test_of(self, rule: Mapping[str, Any], series: Series, *, fires: bool) -> dict[str, Any]:
        """Return a test of promtool."""
        shown = {"exp_labels": {**self.labels, **rule["labels"]}}
        shown["exp_annotations"] = {
            name: self._filled(text) for name, text in rule["annotations"].items()
        }
        expected = {"eval_time": EVALUATED, "alertname": rule["alert"]}
        expected["exp_alerts"] = [shown] if fires else []
        return {
            "interval": "1m",
            "name": f"{rule['alert']} {'fires' if fires else 'is quiet'}",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "alert_rule_test": [expected],
        }

    def _filled(self, text: str) -> str:
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: self.labels[found[1]], text)
        return re.sub(r"\{\{ \$value[^}]*\}\}", self.value, text)


def _histogram(name: str, labels: str, *, above: float, most: bool) -> Series:
    """Return the buckets of a histogram: most observations lie above a bound, or none does."""
    mark = f"{labels}," if labels else ""
    under = "0+1x120" if most else RISES
    return {
        f'{name}{{{mark}le="{above}"}}': under,
        f'{name}{{{mark}le="5.0"}}': RISES,
        f'{name}{{{mark}le="+Inf"}}': RISES,
    }


def _slow(name: str, labels: str, *, above: float = 0.5) -> tuple[Series, Series]:
    return (
        _histogram(name, labels, above=above, most=True),
        _histogram(name, labels, above=above, most=False),
    )


def _counter(series: str) -> tuple[Series, Series]:
    return {series: RISES}, {series: STAYS}


def _gauge(series: str, value: int = 1) -> tuple[Series, Series]:
    return {series: f"{value}x120"}, {series: "0x120"}


_WEBHOOK_SLOW: Final = _slow(_SLOW, _BIND)
_REVIEWS_SLOW: Final = _slow(
    "deferred_quota_admission_duration_seconds_bucket", 'handler="bind",dry_run="false"'
)
_SIZES: Final = "deferred_quota_ledger_size_bytes"

CASES: Final[Mapping[str, Case]] = {
    "DeferredQuotaWebhookFails": Case(
        {f'{_REJECTED}{{{_BIND},error_type="calling_webhook_error"}}': RISES},
        {
            f'{_REJECTED}{{{_BIND},error_type="calling_webhook_error"}}': STAYS,
            f'{_REJECTED}{{{_BIND},error_type="no_error"}}': RISES,
            f'{_REJECTED}{{{_OTHER_WEBHOOK},error_type="calling_webhook_error"}}': RISES,
        },
        {"name": "bind.deferredquota.io", "error_type": "calling_webhook_error"},
    ),
    "DeferredQuotaWebhookIgnored": Case(
        {f"{_OPEN}{{{_BIND}}}": RISES},
        {f"{_OPEN}{{{_BIND}}}": STAYS, f"{_OPEN}{{{_OTHER_WEBHOOK}}}": RISES},
        {"name": "bind.deferredquota.io"},
    ),
    "DeferredQuotaWebhookSlow": Case(*_WEBHOOK_SLOW, {"name": "bind.deferredquota.io"}),
    "DeferredQuotaWebhookAbsent": Case(
        {'deferred_quota_build_info{component="controller"}': STAYS},
        {'deferred_quota_build_info{component="webhook"}': STAYS},
    ),
    "DeferredQuotaReviewsFail": Case(
        {f'{_REVIEWS}{{outcome="error"}}': RISES},
        {f'{_REVIEWS}{{outcome="error"}}': STAYS, f'{_REVIEWS}{{outcome="denied"}}': RISES},
    ),
    "DeferredQuotaReviewsUndecided": Case(
        {
            f'{_REVIEWS}{{handler="bind",outcome="undecided"}}': "0+6x120",
            f'{_REVIEWS}{{handler="bind",outcome="allowed"}}': RISES,
        },
        {
            f'{_REVIEWS}{{handler="bind",outcome="undecided"}}': "0+2x120",
            f'{_REVIEWS}{{handler="bind",outcome="allowed"}}': RISES,
        },
        {"handler": "bind"},
    ),
    "DeferredQuotaReviewsSlow": Case(*_REVIEWS_SLOW, {"handler": "bind"}),
    "DeferredQuotaOverloaded": Case(
        *_counter('deferred_quota_turned_away_requests_total{reason="overload"}'),
        {"reason": "overload"},
    ),
    "DeferredQuotaClientsRefused": Case(
        *_counter('deferred_quota_clients_refused_total{reason="no_certificate"}'),
        {"reason": "no_certificate"},
    ),
    "DeferredQuotaApiCallsFail": Case(
        {
            f'{_CALLS}{{instance="a",code="200"}}': RISES,
            f'{_CALLS}{{instance="a",code="unreachable"}}': "0+3x120",
            f'{_CALLS}{{instance="a",code="503"}}': "0+3x120",
            f'{_CALLS}{{instance="b",code="200"}}': RISES,
        },
        {
            f'{_CALLS}{{instance="a",code="200"}}': RISES,
            f'{_CALLS}{{instance="a",code="409"}}': RISES,
            f'{_CALLS}{{instance="a",code="timeout"}}': "0+3x120",
        },
        {"instance": "a"},
    ),
    "DeferredQuotaCacheStale": Case(
        {'deferred_quota_cache_age_seconds{instance="a",kind="pods"}': "0+30x120"},
        {'deferred_quota_cache_age_seconds{instance="a",kind="pods"}': "90x120"},
        {"instance": "a", "kind": "pods"},
    ),
    "DeferredQuotaNoLeader": Case(
        {'deferred_quota_leader{instance="a"}': "0x120"},
        {
            'deferred_quota_leader{instance="a"}': "0x120",
            'deferred_quota_leader{instance="b"}': "1x120",
        },
    ),
    "DeferredQuotaLeaderChanges": Case(
        {'deferred_quota_leadership_changes_total{change="ended"}': "0+1x120"},
        {
            'deferred_quota_leadership_changes_total{change="ended"}': "0x50 1x70",
            'deferred_quota_leadership_changes_total{change="began"}': "0+1x120",
        },
    ),
    "DeferredQuotaUnguardedBinds": Case(*_counter("deferred_quota_unguarded_binds_total")),
    "DeferredQuotaNotGuarded": Case(
        {'deferred_quota_quota_status_repairs_total{result="unguarded"}': RISES},
        {
            'deferred_quota_quota_status_repairs_total{result="unguarded"}': STAYS,
            'deferred_quota_quota_status_repairs_total{result="masked"}': RISES,
        },
    ),
    "DeferredQuotaGuardMissing": Case(
        {
            'deferred_quota_guard_missing{instance="a"}': "1x120",
            'deferred_quota_guard_missing{instance="b"}': "0x120",
        },
        {'deferred_quota_guard_missing{instance="a"}': "0x120"},
    ),
    "DeferredQuotaEmergencyOpen": Case(
        # one of both leads, and the other shows that it does not
        {
            'deferred_quota_emergency_since_seconds{instance="a"}': "60x120",
            'deferred_quota_emergency_since_seconds{instance="b"}': "0x120",
        },
        # closed, and opened a quarter of an hour before
        {
            'deferred_quota_emergency_since_seconds{instance="a"}': "0x120",
            'deferred_quota_emergency_since_seconds{instance="b"}': f"{45 * 60}x120",
        },
        value="59m 0s",
    ),
    "DeferredQuotaLedgerRepaired": Case(
        *_counter('deferred_quota_ledger_repairs_total{reason="edited"}'), {"reason": "edited"}
    ),
    "DeferredQuotaMiscount": Case(
        *_counter('deferred_quota_drift_pods_total{kind="ghost"}'), {"kind": "ghost"}
    ),
    "DeferredQuotaLedgerLag": Case(
        *_slow("deferred_quota_ledger_lag_seconds_bucket", "", above=2.5)
    ),
    "DeferredQuotaLedgerLarge": Case(
        {f"{_SIZES}_count": RISES, f'{_SIZES}_bucket{{le="1.048576e+06"}}': STAYS},
        {f"{_SIZES}_count": RISES, f'{_SIZES}_bucket{{le="1.048576e+06"}}': RISES},
    ),
    "DeferredQuotaGatesStay": Case(
        {'deferred_quota_gate_removals_total{result="failed"}': RISES},
        {
            'deferred_quota_gate_removals_total{result="failed"}': STAYS,
            'deferred_quota_gate_removals_total{result="removed"}': RISES,
        },
        {"result": "failed"},
    ),
    "DeferredQuotaPodsNotCounted": Case(
        {'deferred_quota_waiting_pods{state="NotCounted"}': "2x120"},
        {
            'deferred_quota_waiting_pods{state="NotCounted"}': "0x120",
            'deferred_quota_waiting_pods{state="QuotaExceeded"}': "9x120",
        },
    ),
    "DeferredQuotaCertificateEnds": Case(
        {"deferred_quota_tls_certificate_not_after_seconds": f"{17 * DAY + 3600}x120"},
        {
            'deferred_quota_tls_certificate_not_after_seconds{instance="a"}': f"{30 * DAY}x120",
            'deferred_quota_tls_certificate_not_after_seconds{instance="none"}': "0x120",
        },
        value="17d 0h 0m 0s",
    ),
    "DeferredQuotaCertificateAuthorityEnds": Case(
        {'deferred_quota_tls_secret_not_after_seconds{role="ca"}': f"{100 * DAY + 3600}x120"},
        {
            'deferred_quota_tls_secret_not_after_seconds{role="ca"}': f"{300 * DAY}x120",
            'deferred_quota_tls_secret_not_after_seconds{role="leaf"}': f"{60 * DAY}x120",
        },
        {"role": "ca"},
        value="100d 0h 0m 0s",
    ),
    "DeferredQuotaCertificateRefused": Case(
        {'deferred_quota_tls_reloads_total{result="refused"}': RISES},
        {
            'deferred_quota_tls_reloads_total{result="refused"}': STAYS,
            'deferred_quota_tls_reloads_total{result="loaded"}': RISES,
        },
    ),
    "DeferredQuotaCertificateNotVerified": Case(
        {
            'deferred_quota_tls_unverified_entries{instance="a"}': "0x120",
            'deferred_quota_tls_unverified_entries{instance="b"}': "12x120",
        },
        {'deferred_quota_tls_unverified_entries{instance="a"}': "0x120"},
    ),
    "DeferredQuotaBundleDrifts": Case(
        {"deferred_quota_tls_bundle_drift_total": "0+1x120"},
        {"deferred_quota_tls_bundle_drift_total": "0x50 1x70"},
    ),
    "DeferredQuotaRotationFails": Case(
        *_counter('deferred_quota_tls_rotation_failures_total{reason="foreign"}'),
        {"reason": "foreign"},
    ),
    "DeferredQuotaConfigurationRejected": Case(*_gauge("deferred_quota_configuration_rejected")),
    "DeferredQuotaConfigurationHeldBack": Case(*_gauge("deferred_quota_configuration_held_back")),
    "DeferredQuotaConfigurationsDiffer": Case(
        {
            'deferred_quota_configuration_hash{instance="a"}': "7x120",
            'deferred_quota_configuration_hash{instance="b"}': "8x120",
        },
        {
            'deferred_quota_configuration_hash{instance="a"}': "7x120",
            'deferred_quota_configuration_hash{instance="b"}': "7x120",
        },
    ),
}
