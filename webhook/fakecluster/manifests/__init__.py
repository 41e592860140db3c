"""Clusters out of files, as `kubectl get -o yaml` prints them.

- `snapshot`: all objects of some files, or an error with its place.
- `loading`: a fake cluster of them, with the API server's defaults.
"""
