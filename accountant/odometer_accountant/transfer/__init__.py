"""A ledger as a file, and a file as a ledger."""
