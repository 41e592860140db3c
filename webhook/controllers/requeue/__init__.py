"""Requeue unschedulable pods that were turned down for quota, once there is quota for them.

- `controller`: selects pods and touches them, so that their scheduler tries them again.
- `unschedulable`: such pods of one namespace; `requeue_snapshot`: ledger and grants to decide by.
- `requeue_client`: reads and patches within a rate limit.

Pods behind our scheduling gate belong to `queue`.
"""
