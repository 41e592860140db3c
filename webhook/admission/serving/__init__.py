"""Serving: bytes on sockets to requests, responses to bytes, and the process around them.

- `server`, `server_settings`, `sockets`: the process: listeners, start, stop.
- `worker`, `event_loop`, `connection`, `framing`, `concurrency`: connections of the webhook port,
  their deadlines and limits.
- `probes`, `plain_http`: the other ports.
- `app`, `request_body`, `request_log`, `http_response`: a request before and around its decision;
  `undecided`: the answers to requests that are not decided.

Belongs here: whatever a client can do to a server. Does not: what a review says (`review`).
"""
