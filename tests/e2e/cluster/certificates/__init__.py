"""Certificates of webhooks and of API servers, kept by the controller or by cert-manager."""
