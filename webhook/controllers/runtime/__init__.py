"""Parts of every control loop: leadership, workqueue, threads, rate limits and events.

- `election`, `lease`: leader election by a Lease; `leadership`: the epoch to write under.
- `workqueue`: keys with due times, one worker for each key; `rate_limit`: a token bucket.
- `periodic`: a thread that repeats one step; `events`: Events on objects.

Nothing here concerns quota.
"""
