"""Look a cluster over, whether everything is installed, enforced and counted as it should be.

`examination` runs the checks, one module for each group of them; a check takes a `Scene` and
yields findings. It only reads, and tries one bind by a dry run. What it may not do, or cannot, is a
finding too, and the other checks go on.
"""

from webhook.operations.doctor.examination import CHECKS, Check, Examination, examine
from webhook.operations.doctor.scene import Scene, Settings

__all__ = ["CHECKS", "Check", "Examination", "Scene", "Settings", "examine"]
