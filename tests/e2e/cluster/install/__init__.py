"""Installed, configured, moved, upgraded and removed; rights and components of all that."""
