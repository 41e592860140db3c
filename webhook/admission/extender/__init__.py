"""Scheduler extender: filter and preempt calls, before a node is chosen or a pod evicted.

- `protocol`: the JSON of the extender protocol v1.
- `decisions`: the answers: dry runs of the bind; nothing is written.
- `endpoint`: a POST in, an HTTP response out.

Belongs here: how a scheduler learns of the outcome of a bind. Does not: any rule of quota (the
handlers have them), and safety. Whatever is answered here, the guard decides at the bind.
"""
