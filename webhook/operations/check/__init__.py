"""`check`: what a cluster would make of manifests."""
