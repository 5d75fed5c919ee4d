"""The one thread that decides and appends, what it caches, and the watch over histories that were seen."""
