"""Admission: AdmissionReview in, AdmissionReview out.

- `serving`: the server, down to its sockets.
- `review`, `review_types`, `patch_builder`, `deadline`: the format of reviews and responses, and
  the time that a response may take.
- `handlers`: the decisions, one module for each kind of request; `dispatch` is their table.
- `extender`: the scheduler's questions, answered by dry runs of binds.

Belongs here: what a request is and how it is answered. Does not: how quota is counted (`quota`),
where reservations are kept (`state`), what the configuration means (`policy`).
"""
