"""JSON without floats, and typed readers of its fields with errors that name the path.

- `encoding`: text to plain values and back.
- `fields`: readers of one value, and the errors of fields.
- `reader`: reads the fields of one object.

The lowest package: knows nothing of Kubernetes or of quota.
"""
