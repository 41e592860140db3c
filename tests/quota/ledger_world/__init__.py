"""A small world in which the ledger has to keep its laws.

Storage holds pods, quotas and one ledger object, each change with a resource version. Handlers and
controllers are separate actors that see storage late, at different times, and through writes that
can conflict or whose answers can get lost. Nothing here shares code with the ledger's arithmetic:
what is really taken is summed from the pods in storage.

- `objects`: versions of pods and quotas, requests; whole numbers as amounts.
- `storage`: what is stored, every version of it, and a clock. It decides nothing.
- `people`: who creates and deletes, and does what nobody should.
- `replicas`: what handlers and controllers have in common: late caches.
- `handlers`: what is asked of the webhook. `requests`: what becomes of it, up to storage.
- `controllers`: who counts, settles and releases.
- `checks`: what has to hold, at every moment and in the end.
- `world`: all of them together. `driver`: takes arbitrary steps in it.
"""
