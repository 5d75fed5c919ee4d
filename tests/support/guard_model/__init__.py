"""A model test of the Opacus guard: random training loops, and an oracle that says what they cost."""
