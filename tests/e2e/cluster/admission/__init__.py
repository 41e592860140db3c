"""Binds, creations and resizes: what each handler admits, charges and refuses."""
