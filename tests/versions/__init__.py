"""The end-to-end tests on several versions of Kubernetes, and a table of what was seen."""
