"""Simulations: scenarios and traces from files, and what is made of the results.

The simulation itself is in `webhook.quota.simulation`.
"""
