"""Read the facts of a cluster, or of a snapshot, from which `webhook.quota.explaining` answers."""
