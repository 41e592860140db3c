"""Guarded changes of the resources of suspended Jobs."""
