"""A simulated cluster: pods arrive, wait, run and end, under one way of charging quota.

Here belong time, events and figures. Here does not belong any rule of quota, of the queue or of the
scheduler: those are called where they are. Files, reports and commands are elsewhere.
"""
