"""The control plane of these tests, and the contract between it and the live client."""
