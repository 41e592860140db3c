"""REST paths of the fake API server.

- `apiserver`: the WSGI application; `routes`, `resources`, `discovery`: its paths.
- `strategic_merge`: patches as kubectl sends them.
"""
