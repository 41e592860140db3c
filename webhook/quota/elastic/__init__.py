"""Elastic quotas: guaranteed minimum, maximum, borrowing within a pool, fair share, reclaim.

- `elastic_quotas`: the objects `ElasticQuota` and `CompositeElasticQuota`, read and validated.
- `gpu_memory`: the resource `nos.nebuly.com/gpu-memory`, out of what a pod requests.
- `fair_share`: a pool of quotas: what is borrowed, lent, free and guaranteed.
- `capacity`: which pods of a quota are over it.
- `reclaim`: which pods have to go so that a queued pod gets what its quota is entitled to.

Amounts are whole numbers of 10⁻⁹ units (`Nanos`), so that shares and floors are exact and quick.
"""
