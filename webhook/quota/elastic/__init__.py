"""Elastic quotas: guaranteed minimum, maximum, borrowing within a pool, fair share, reclaim.

- `elastic_quotas`: the objects `ElasticQuota` and `CompositeElasticQuota`, read and validated;
  `derived_quotas` makes the ClusterDeferredQuotas of them by which they are charged,
  `elastic_status` their status.
- `fair_share`, `balance`: a pool of quotas: what is borrowed, lent, free and guaranteed, also while
  pods are taken.
- `capacity`: which pods of a quota are over it; `owners_first`: whose pods are released first.
- `reclaim_plan`: which pods have to go so that a queued pod gets what its quota is entitled to.
  `beneficiaries` orders those pods; `victims`, `pod_groups` and `disruption_budgets` say which go
  next, which go together, and which may not go now.

Amounts are whole numbers of 10⁻⁹ units (`Nanos`), so that shares and floors are exact and quick.
"""
