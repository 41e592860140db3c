"""Loops that keep the ledger true: read caches, take one idempotent step, come again.

- `counting`: what the pods of a namespace use, kept up to date pod by pod.
- `expiry`: which reservations nobody can be using any more.
- `tracked`: one namespace, and when something is to be done about it.
- `tracker`: writes what was counted into each namespace's ledger.

What a step decides is decided by the core (`webhook.quota.settlement`); these loops gather what
it needs and carry out what it says.
"""
