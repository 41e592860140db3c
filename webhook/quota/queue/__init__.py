"""The queue of gated pods: order, cycles, conditions, and pods to requeue."""
