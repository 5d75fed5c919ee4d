"""The one thread that decides and appends, its cache of states, and the checks for rolled back ledgers."""
