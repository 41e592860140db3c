"""`deferred-quota emergency`: what it asks, does and prints."""
