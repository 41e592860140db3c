"""Look a cluster over, whether everything is installed, enforced and counted as it should be.

`examination` runs the checks, one module for each group of them; a check takes a `CheckContext` and
yields findings. It only reads, and tries a bind and asks for the time by dry runs. What it may not
do, or cannot, is a finding too, and the other checks go on.
"""
