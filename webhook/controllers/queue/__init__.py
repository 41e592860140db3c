"""The queue of gated pods in each namespace: order, reservations and removal of gates.

- `controller`: runs a queue on the ledger that is about to be written.
- `queue_state`: state of one queue; `gated_pods`: its pods in their order.
- `gate_remover`: patches that remove gates.

The order itself is decided in `webhook.quota`; why a pod waits is written by `conditions`.
"""
