"""Ledgers: what is counted and promised in them, when it ends, and what cannot be counted."""
