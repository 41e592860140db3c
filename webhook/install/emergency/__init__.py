"""Open and close the emergency, in which the webhook is not called and quotas are native.

`opening` and `closing` have the order of the writes, `switching` the writes themselves. What the
state looks like in a cluster is in `webhook.operations.emergency_state`, for `doctor`.
"""
