"""Recount of a ledger from its entries, with code that the writer does not use."""
