"""Grants of quotas that several namespaces share.

- `controller`: removes namespaces that left, and marks quotas that are completely counted.
- `grant_transaction`: grants of one namespace while its ledger is reconciled.
- `completeness`, `participation`: which namespaces are counted, and which take part.
- `leaving`, `ledgerless`: namespaces that leave without a reconciliation of their own, or are being
  deleted and have lost their ledger.
- `shared_context`: store and caches that these use.

The protocol of grants and ledgers is described in `webhook.quota.shared.escrow`.
"""
