"""The accountant as a library: losses, mechanisms, budgets, ledger. No HTTP, no async."""
