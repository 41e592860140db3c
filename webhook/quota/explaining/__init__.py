"""Why a pod is pending: every cause that holds now, with numbers, and what would unblock it.

Facts in, an `Explanation` out. Nothing is taken from a condition of the pod that deferred-quota
wrote: the queue is run again on the ledger, the pods and the nodes as they are now.
"""
