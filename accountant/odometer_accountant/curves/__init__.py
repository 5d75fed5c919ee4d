"""Rényi curves of mechanisms: pure functions of their parameters, one family per module."""
