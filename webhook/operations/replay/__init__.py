"""Read what a cluster recorded of its pods, as something that can happen again otherwise."""
