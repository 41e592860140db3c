"""The core: quotas, what they charge, and what fits; values in, values out.

Here belongs every rule about amounts, pods, Jobs, quotas and reservations. Here does not
belong anything that reads a clock, a file or the network, logs, or keeps state: time, ids and
objects are arguments, answers are values. What is refused is an answer; an exception
(`InvalidFieldError`, with the YAML path of the field) means input that cannot be read.

The names below are public and stable; modules of the package are not:

    >>> from webhook.quota import Quantity, evaluate, job_update_errors, pod_usage
    >>> str(Quantity.parse("1.5Gi") + Quantity.parse("512Mi"))
    '2Gi'

- `Quantity`: an exact amount.
- `pod_usage(pod, now)`: what a pod is charged, by quota key.
- `evaluate(pod, quotas, limited, now)`: whether a pod may be created, as the API server's own
  quota check answers, in its words.
- `job_update_errors(old, new, gates)`: why the API server refuses an update of a Job.

They are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from webhook.jsonfields.fields import FieldError, InvalidFieldError
    from webhook.quota.amounts.quantity import InvalidQuantityError, Quantity
    from webhook.quota.charging.denials import Cause, Refusal
    from webhook.quota.charging.evaluation import Evaluation, evaluate
    from webhook.quota.charging.limited_resources import LimitedResource
    from webhook.quota.charging.pod_usage import pod_usage
    from webhook.quota.jobs import job_update_errors

__all__ = [
    "Cause",
    "Evaluation",
    "FieldError",
    "InvalidFieldError",
    "InvalidQuantityError",
    "LimitedResource",
    "Quantity",
    "Refusal",
    "evaluate",
    "job_update_errors",
    "pod_usage",
]

_MODULES: Final = {
    "Cause": "charging.denials",
    "Evaluation": "charging.evaluation",
    "FieldError": ".jsonfields.fields",
    "InvalidFieldError": ".jsonfields.fields",
    "InvalidQuantityError": "amounts.quantity",
    "LimitedResource": "charging.limited_resources",
    "Quantity": "amounts.quantity",
    "Refusal": "charging.denials",
    "evaluate": "charging.evaluation",
    "job_update_errors": "jobs",
    "pod_usage": "charging.pod_usage",
}


if not TYPE_CHECKING:  # a type checker that sees this would let every misspelt name pass

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f".{_MODULES[name]}", __name__), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
