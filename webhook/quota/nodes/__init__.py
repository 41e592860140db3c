"""Nodes that a pod fits on, as the scheduler judges them, and the kubelet's admission there.

Here belong the scheduler's filters and scores, one module per part of a pod, and the kubelet's
figures. Here does not belong how nodes and pods are read, and what follows for quota.
"""
