"""Namespaces that opt in and out, are left alone or only watched, and the mask of their quotas."""
