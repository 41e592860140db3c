"""Snapshots of a cluster: all that the commands read, without what could be secret."""
