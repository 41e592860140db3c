"""A fake API server in one process, for the demo, tests and commands on files.

- `storage`: objects, versions, conflicts, watches, and what the API server makes of a write.
- `admission`: the admission chain that calls webhooks over HTTPS.
- `rest`: the paths of the REST API, as a WSGI application.
- `manifests`: a cluster out of files.

Only the embedded runtime, the commands and tests import it (a contract in `pyproject.toml`).
Does not belong here: our own handlers, or anything that a real cluster would run elsewhere.
"""
