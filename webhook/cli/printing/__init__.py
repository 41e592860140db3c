"""Reports of commands as text, JSON and YAML."""
