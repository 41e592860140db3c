"""Loops that keep the ledger true: read caches, take one idempotent step, come again.

- `opted`: which namespaces are to be counted, and by which quotas; `counts`: those that are.
- `counting`: what the pods of a namespace use, kept up to date pod by pod; `terminating`: which of
  them are not charged any more though they are there.
- `expiry`: which reservations nobody can be using any more.
- `tracked`: one namespace, and when something is to be done about it.
- `tracker`: has what was counted written into each namespace's ledger, while it leads;
  `reconciling` takes one namespace after the other, and `settling` puts together what is written:
  `ledger_reader` knows what is there, or lost, and `ledger_writer` writes under a leadership.
- `shares`: what namespaces hold of quotas that they share. `share_turn` keeps it true while one is
  settled, `share_keeper` besides, and `completeness` says whether all are counted.
- `rounds`: the thread that such a loop runs on; `terms`: the leadership that it works under.

What a step decides is decided by the core (`webhook.quota.settlement`); these loops gather what
it needs and carry out what it says.
"""
