"""Quotas of several namespaces: their definition, grants, and the escrow between ledgers."""
