"""Names, options and help of the commands; each imports its body when it runs."""
