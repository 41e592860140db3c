"""Changes of suspended Jobs."""
