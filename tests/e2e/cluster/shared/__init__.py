"""Quotas that namespaces share."""
