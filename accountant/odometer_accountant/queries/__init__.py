"""Reads of a ledger: readings, advice, receipts, history, lineage. They change nothing."""
