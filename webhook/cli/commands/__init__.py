"""What commands are called, take and say in their help; each imports its body when it runs."""
