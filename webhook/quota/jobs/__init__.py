"""Rules for updates of Jobs, and whether their pods fit their quotas.

The API server's rules:

- `update_validation`: the rule for updates; `templates`: which changes of a pod template pass.
- `validation`, `metadata_rules`, `resource_rules`, `scheduling_rules`, `operators`: the rules for a
  Job whatever it was before.
- `equality`, `job_fields`: equality as the API server compares values, by the fields of a Job.
- `droppable_fields`: fields that an API server may drop before it judges.
- `explain`, `template_diff`: a refusal in words that say what to do.

The rules of a cluster: `policy`, by what an update changes (`resize_diff`) and who manages the
fields (`managed_fields`).

Pods and quotas: `job_pods`, `parallelism` and `capacity`: which pods a Job has, how many at a time,
and whether they fit. `resize_plan`: the steps of `deferred-quota job resize`.
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
