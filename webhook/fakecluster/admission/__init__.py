"""Admission chain of the fake API server.

- `chain`: which webhooks are called, in which order, and what their responses mean.
- `webhook_client`, `webhook_reviews`, `webhook_patches`: the call, its JSON, its patch.
- `webhook_configurations`: our own webhooks, as `manifests/` registers them.
"""
