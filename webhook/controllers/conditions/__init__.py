"""The condition `deferredquota.io/QuotaReserved` of queued pods.

`controller` compares and writes conditions; `condition_queue` orders the pods that it looks at.
Conditions of ledgers are in `ledger.ledger_conditions`.
"""
