"""Elastic quotas of a cluster or of a snapshot: their pools, and plans to reclaim."""
