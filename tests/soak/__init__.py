"""A long run under an even load, with what wears: `scripts/soak`.

Watches are cut, certificates renewed and the configuration changed, over and over. What grows with
time is found by slopes of memory, descriptors and threads of each process.
"""
