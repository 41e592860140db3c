"""Elastic quotas: borrowed, and reclaimed."""
