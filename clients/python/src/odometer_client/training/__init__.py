"""Hooks into training frameworks. Each imports its framework itself; this package imports none."""
