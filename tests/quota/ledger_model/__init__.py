"""Every interleaving of two handlers and two leaders at one ledger, with one or two pods.

`state` has what there is, `decisions` what the product's own functions answer, `steps` what may
happen next, and `search` walks through all of it.
"""
