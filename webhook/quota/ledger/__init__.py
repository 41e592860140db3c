"""The ledger of a namespace: its laws, its values, its stored form, and how counts enter it."""
