"""Records of namespaces in shadow mode.

`controller` follows these namespaces and writes their records; `shadow_namespace` counts one of
them. Nothing here charges, gates or masks.
"""
