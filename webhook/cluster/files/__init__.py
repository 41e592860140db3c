"""Objects from files: YAML and JSON documents, and snapshots of a cluster made of them.

Amounts keep their source text, whatever a file is wrong about is named with file, document, line
and field, and nothing is taken in by halves.
"""
