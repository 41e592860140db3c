"""What an outage does to users, which alert it fires, what heals it: docs/operations/outages.md."""
