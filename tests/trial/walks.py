"""By what each runbook is walked: a part of the trial, or a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OUTAGES: Final = "e2e/cluster/outages"
WALKS: Final[Mapping[str, str]] = {
    "DeferredQuotaWebhookFails": "The webhook is gone",
    "DeferredQuotaWebhookIgnored": f"{_OUTAGES}/test_webhook.py::test_no_webhook_runs",
    "DeferredQuotaWebhookSlow": f"{_OUTAGES}/test_webhook.py::test_the_webhook_hangs",
    "DeferredQuotaWebhookAbsent": f"{_OUTAGES}/test_webhook.py::test_no_webhook_runs",
    "DeferredQuotaReviewsFail": (
        "e2e/test_server_reviews.py::test_a_fault_is_500_and_does_not_end_the_connection"
    ),
    "DeferredQuotaReviewsUndecided": (
        "e2e/cluster/ledger/test_expiry.py::test_while_a_lost_ledger_is_waited_for_nothing_is_admitted"
    ),
    "DeferredQuotaReviewsSlow": f"{_OUTAGES}/test_control_plane.py::test_the_api_server_is_slow",
    "DeferredQuotaOverloaded": (
        "e2e/test_server_bad_sockets.py"
        "::test_more_than_can_be_answered_in_time_is_turned_away_early"
    ),
    "DeferredQuotaClientsRefused": (
        "e2e/cluster/certificates/test_client_certificates.py"
        "::test_an_api_server_without_a_certificate_gets_the_reason"
    ),
    "DeferredQuotaApiCallsFail": "The API server is restarted",
    "DeferredQuotaCacheStale": (
        f"{_OUTAGES}/test_control_plane.py::test_one_of_three_webhooks_is_cut_off"
    ),
    "DeferredQuotaNoLeader": "The controller is gone",
    "DeferredQuotaLeaderChanges": f"{_OUTAGES}/test_leader.py::test_the_leader_stands_still",
    "DeferredQuotaUnguardedBinds": (
        "e2e/cluster/ledger/test_unguarded.py::test_only_a_pod_that_was_not_reviewed_is_reported"
    ),
    "DeferredQuotaNotGuarded": "The registration of the guard is deleted",
    "DeferredQuotaGuardMissing": "The registration of the guard is deleted",
    "DeferredQuotaEmergencyOpen": "Webhook and controller are gone, and binds have to go on",
    "DeferredQuotaLedgerRepaired": "A ledger is deleted",
    "DeferredQuotaMiscount": (
        "controllers/ledger/test_drift.py::test_a_pod_that_is_not_counted_is_found"
    ),
    "DeferredQuotaLedgerLag": f"{_OUTAGES}/test_control_plane.py::test_the_api_server_is_slow",
    "DeferredQuotaLedgerLarge": (
        "state/test_reserver_size.py::test_the_newest_claims_wait_until_there_is_room_again"
    ),
    "DeferredQuotaGatesStay": (
        "controllers/queue/test_pod_queues.py::test_a_patch_that_failed_is_sent_again"
    ),
    "DeferredQuotaPodsNotCounted": (
        "e2e/cluster/commands/test_explain.py"
        "::test_a_quota_that_is_not_counted_is_reported_instead_of_old_numbers"
    ),
    "DeferredQuotaCertificateEnds": "The certificate is to be another one",
    "DeferredQuotaCertificateAuthorityEnds": "The CA is to be another one",
    "DeferredQuotaCertificateRefused": "The certificate is garbage",
    "DeferredQuotaCertificateNotVerified": "The caBundle is another CA's",
    "DeferredQuotaBundleDrifts": "The caBundle is wiped",
    "DeferredQuotaRotationFails": "Rights are missing",
    "DeferredQuotaConfigurationRejected": (
        "runtime/test_effective_configuration.py::test_a_rejected_file_is_reported_until_it_is_mended"
    ),
    "DeferredQuotaConfigurationHeldBack": (
        "e2e/cluster/install/test_configuration_changes.py"
        "::test_an_exempt_namespace_is_guarded_until_the_api_server_enforces_its_quotas"
    ),
    "DeferredQuotaConfigurationsDiffer": (
        "runtime/test_effective_configuration.py::test_a_rejected_file_is_reported_until_it_is_mended"
    ),
}
"""Alert → title of a part of the trial, or a test below `tests/`."""


def walks_table() -> str:
    """Return the section of the page that says by what each runbook is walked."""
    rows = [
        f"| [{alert}](runbooks.md#{alert.lower()}) | {f'`{walk}`' if '::' in walk else walk} |"
        for alert, walk in WALKS.items()
    ]
    head = [
        "## By what each runbook is walked",
        "",
        "By a part of this page; what cannot be broken here is a test, which the table names.",
        "",
        "| runbook | part, or test |",
        "| --- | --- |",
    ]
    return "\n".join((*head, *rows, ""))
