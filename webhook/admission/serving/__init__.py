"""Serving: bytes on sockets to requests, answers to bytes, and the process around them.

- `server`, `settings`: the process: listeners, start, stop, probes.
- `worker`, `loop`, `connection`, `framing`, `gate`: connections of the webhook port; who waits
  for whom, and for how long.
- `ops`, `plain`: the other ports.
- `app`, `bodies`, `records`, `http`: what a request gets before and around its decision.

Belongs here: whatever a client can do to a server. Does not: what a review says (`review`).
"""
