"""Usage of pods, and the quotas that select them: scopes, claims, denials, the status mask."""
