"""Rules for updates of Jobs, and whether their pods fit their quotas.

As the API server has it: `update` is the rule; `templates` compares pod templates, `rules`,
`resource_rules` and `operators` validate the new one, `equality` is the API's own notion of
sameness, by what stands where: `fields_of_jobs`. `dropping`
leaves out what only the API server can judge. `explaining` and `changes` put a refusal into words.

As a cluster wants it: `policy` judges an update that the API server takes; `resizes` and `managers`
read what it changes, and by which manager.

How many pods there are, and whether they fit: `counting`, `pods` and `fitting`.
"""

from webhook.quota.jobs.update_validation import (
    ALL_GATES,
    Gates,
    JobGate,
    JobState,
    job_state,
    job_update_errors,
)

__all__ = ["ALL_GATES", "Gates", "JobGate", "JobState", "job_state", "job_update_errors"]
