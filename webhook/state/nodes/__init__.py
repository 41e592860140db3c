"""Nodes and the pods on them, cached where `nodeFit` is on, and what is being bound to them."""
