"""What the commands about files do: they need no cluster."""
