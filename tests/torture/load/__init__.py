"""Load: pods that are created, bound, resized, ended and deleted, by several threads."""
