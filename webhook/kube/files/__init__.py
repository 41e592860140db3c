"""Objects from files: YAML and JSON documents.

Amounts keep their source text; an error names file, document, line and field.
"""
