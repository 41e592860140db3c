"""Admission: AdmissionReview in, AdmissionReview out.

- `serving`: the server, down to its sockets.
- `review`, `wire`, `patches`, `deadline`: the format of reviews and answers, and how long an
  answer may take.
- `extender`: what a scheduler is told, by trying binds out at the doors.
- `doors`: the decisions, one module per door; `rules` is what they decide by.

Belongs here: what a request is and what it is answered. Does not: how quota is counted (`quota`),
where reservations are kept (`state`).
"""
