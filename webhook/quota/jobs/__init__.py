"""What an update of a Job may change, and what the API server says to the rest.

`update` is the rule; `templates` compares pod templates, `rules` and `resource_rules` validate the
new one, `equality` and `label_selectors` are the API's own notions of sameness and matching.
"""

from webhook.quota.jobs.update import (
    ALL_GATES,
    Gates,
    JobGate,
    JobState,
    job_state,
    job_update_errors,
)

__all__ = ["ALL_GATES", "Gates", "JobGate", "JobState", "job_state", "job_update_errors"]
