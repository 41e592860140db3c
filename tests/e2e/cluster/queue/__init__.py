"""Pods that wait for quota: gates, their order, reasons, and the scheduler beside them."""
