"""Causes for which a pod is pending now, with numbers, and actions that would unblock it.

Facts in, an `Explanation` out. Nothing is taken from a condition of the pod that deferred-quota
wrote: the queue is run again on the ledger, the pods and the nodes as they are now.
"""
