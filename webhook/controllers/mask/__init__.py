"""Hide deferred resources in the status of ResourceQuotas, and restore them.

`controller` writes the status; `webhook_registration` reads whether the webhook that enforces
those resources at the bind is registered; `pod_lists` lists what a status is completed by. What is
hidden is computed by `webhook.quota`.
"""
