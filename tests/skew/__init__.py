"""Two versions of the product side by side: `scripts/skew`.

Another version is built out of git. The load, the observer and the judges are those of
`tests.torture`; what is done to the product is the story of an upgrade, of the way back, and of
what a rolling update of controllers would do.
"""
