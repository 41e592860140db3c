"""Objects of the API as values: pods, quotas, their defaults, names and selectors.

Nothing here knows usage or ledgers.
"""
