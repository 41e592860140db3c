"""The product on a real Kubernetes control plane; run by scripts/e2e."""
