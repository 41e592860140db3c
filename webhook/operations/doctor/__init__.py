"""Examine a cluster: what is not installed, enforced or counted as it should be.

`runner` runs the checks, one module for each group of them; a check takes a `CheckContext` and
yields findings. It only reads, except for dry runs: of a bind, and to learn the API server's time.
A check that is not permitted, or fails, is a finding too, and the other checks go on.
"""
