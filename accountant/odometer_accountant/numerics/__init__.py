"""Exact units, losses and conversions: numbers that are only ever rounded towards more loss."""
