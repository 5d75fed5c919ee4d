"""The HTTP service over the accountant."""
