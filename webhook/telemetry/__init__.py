"""Logs and metrics: what the program says about itself.

Belongs here: the format of log lines, every metric. Does not: when to log or count, which the
code that knows the fact decides.
"""
