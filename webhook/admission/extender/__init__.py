"""The scheduler asks before it chooses a node, and before it evicts pods for one.

- `wire`: what a scheduler sends and reads, the extender protocol v1.
- `decisions`: what it is answered. The bind is tried out at the doors; nothing is written.
- `endpoint`: a POST in, an HTTP answer out.

Belongs here: how a scheduler is told what a bind would be told. Does not: any rule of quota (the
doors have them), and safety. Whatever is answered here, the guard decides at the bind.
"""
