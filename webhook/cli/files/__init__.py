"""Bodies of the commands about files: they need no cluster."""
