"""Verdicts of a control plane about manifests: admitted, waits, refused, and by which rule.

Manifests and what is known of their namespace in, one result for each object out. Nothing is
charged twice: usage, scopes, rules and node filters are those that admission decides by.
"""
