"""Parts of every control loop: leadership, workqueue, threads, rate limits and events.

- `election`, `lease`: leader election by a Lease; `leadership`: the epoch to write under.
- `controller`: workers that reconcile keys; `workqueue`: the keys, with due times and back-off.
- `rate_limit`: exponential back-off, token bucket; `periodic`: a thread that repeats one step.
- `turns`: items of many namespaces, which take turns.
- `events`: Events on objects.
- `context`, `timings`: what every controller of a process is given.

Nothing here concerns quota.
"""
