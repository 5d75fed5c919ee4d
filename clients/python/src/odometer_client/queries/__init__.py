"""Hooks into query libraries. Each imports its library itself; this package imports none."""
