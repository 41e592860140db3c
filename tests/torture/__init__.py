"""A real control plane under load and faults, and an observer that nobody can talk out of a fact.

```
observer/          etcd's history, whether a rule was broken in it; without code of the product
  amounts, usage     what a pod takes and which quotas select it, written anew
  facts, recorder    what etcd's history says of pods, quotas and ledgers, revision by revision
  replay             the judge: was more assigned than a quota allowed, at any revision?
  gating, clusters   further judges: of gates, and of what namespaces take together
  strict             counts each pod until it is gone, and by the platform's rule
load/              wire, shapes, binders that create, bind, resize, end and delete pods
  churn              threads that share a few names, and delete with a grace period
faults/            what is broken on purpose; `driver` says when, and for how long
proxy, links       TCP in between: delays, lost answers, cut and dead connections
stack, run, report everything together; `scripts/torture --help`
```
"""
