"""Exact amounts: quantities, their text, and resource lists."""
