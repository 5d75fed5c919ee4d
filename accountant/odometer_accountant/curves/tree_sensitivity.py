"""How much one unit can move a tree of noisy partial sums: the squared L2 sensitivity over all its nodes."""

from functools import cache, lru_cache
from typing import Final

Best = dict[tuple[int, int, int], int]
"""By (free steps at either end, how many participations): the largest sum of squares."""
_EXACT_STATES: Final = 80
"""Up to so much of (gap squared) times participations, the worst pattern is found exactly."""


def most_participations(steps: int, trees: int, separation: int) -> int:
    """In how many steps of all trees a unit can take part, `separation` steps between two in one tree."""
    return trees * -(-steps // (separation + 1))


@lru_cache(maxsize=1024)
def squared_sensitivity(steps: int, trees: int, participations: int, separation: int) -> int:
    """Largest sum over all nodes of (a unit's participations under the node) squared, an upper bound.

    steps: leaves of each tree, whose nodes are the complete binary subtrees over them; trees: one after
    another; participations: at most so many over all trees; separation: rounds strictly between two of one
    tree.
    Source: Kairouz et al. 2021, App. D (the tree); Choquette-Choo et al. 2023 (patterns). Exact for one
    participation, and for a small single tree; else each level has its own worst pattern.
    """
    gap = separation + 1
    bound = _by_level(steps, trees, participations, gap)
    small = trees == 1 and steps <= 32 and min(gap, steps) ** 2 * participations <= _EXACT_STATES
    return min(bound, _exact(steps, participations, gap)) if small and participations > 1 else bound


def _by_level(steps: int, trees: int, participations: int, gap: int) -> int:
    total, width = 0, 1
    while width <= steps:
        nodes = steps // width
        most = min(participations, -(-width // gap))
        # Participations that fall under nodes of this level: of each tree at most one in `gap` steps.
        covered = min(participations, trees * -(-(nodes * width) // gap))
        full, rest = divmod(covered, most)
        total += full * most**2 + rest**2
        width *= 2
    return total


def _exact(steps: int, participations: int, gap: int) -> int:
    """By dynamic programming over the complete subtrees; a pattern is known by its ends and its size."""
    free = (gap, gap, 0)  # steps before the first and after the last participation, both capped; how many

    def joined(left: Best, right: Best, n_left: int, n_right: int) -> Best:
        found: Best = {}
        for (a, b, m), value in left.items():
            for (c, d, n), other in right.items():
                if m + n > participations or (m and n and b + c + 1 < gap):
                    continue
                first = a if m else min(gap, n_left + c) if n else gap
                last = d if n else min(gap, n_right + b) if m else gap
                state = (first, last, m + n)
                found[state] = max(found.get(state, -1), value + other)
        return found

    @cache
    def complete(width: int) -> Best:
        if width == 1:
            return {free: 0, (0, 0, 1): 1}
        half = complete(width // 2)
        both = joined(half, half, width // 2, width // 2)
        return {state: value + state[2] ** 2 for state, value in both.items()}

    forest, done = {free: 0}, 0
    for bit in reversed(range(steps.bit_length())):
        if steps >> bit & 1:
            forest = joined(forest, complete(1 << bit), done, 1 << bit)
            done += 1 << bit
    return max(forest.values())
