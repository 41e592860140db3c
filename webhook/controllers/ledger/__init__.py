"""Count the pods of every managed namespace and reconcile its QuotaLedger.

- `controller`: wiring and leadership; `reconcile_worker`: one key of the work queue; `reconciler`:
  what is written into one ledger; `context`: the collaborators of all of them.
- `ledger_reader`, `ledger_writer`, `ledger_conditions`: the ledger as it is read and written.
- `guard_adoption`: the registration by which ledgers are marked.
- `usage_cache`: usage of all namespaces; `namespace_state`, `namespace_usage`: of one of them.
- `reservation_expiry`: reservations without a request.
- `drift`: comparison with a fresh list of pods; `recent_binds`, `unguarded_binds`: binds without a
  reservation; `recorder`: events and metrics of all this.

The rules for a ledger are in `webhook.quota.ledger.ledger`, its storage in
`webhook.state.ledger_store`.
"""
