"""Draw docs/plot/stopping.svg: an analyst who stops at the worst moment, and three readings of the loss.

Gaussian queries with noise multiplier 10, at most 4,000, at δ = 0.01. A line shows how many of 20,000
simulated runs have had a loss above the reading by then, at whatever moment (docs/soundness.md, section 2).

python tools/plot_stopping.py     takes some ten seconds; the seed is fixed
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from odometer_accountant.numerics import conversions, prior
from odometer_accountant.numerics.grid import GRID_V1
from odometer_accountant.numerics.mixture import Mixture

ROOT = Path(__file__).resolve().parent.parent

RUNS, BATCH, QUERIES = 20_000, 500, 4_000
DELTA, NOISE_MULTIPLIER, SEED = 0.01, 10.0, 7
RHO = 1 / (2 * NOISE_MULTIPLIER**2)

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 380, 64, 240, 24, 52
LOW, HIGH = 1e-4, 0.5
COLOURS = {"fixed_plan": "#b3261e", "textbook": "#c77700", "odometer": "#1d5b86"}
LABELS = {
    "fixed_plan": "fixed_plan, read as a bound",
    "textbook": "textbook conversion",
    "odometer": "odometer",
}


def textbook(losses: Any) -> float:
    """Min over orders of S + log(1/δ)/(α − 1): Mironov 2017, Prop. 3."""
    return float(np.min(losses - math.log(DELTA) / (GRID_V1.orders - 1)))


def fixed_plan(losses: Any) -> float:
    """The sharper conversion that the service's own fixed_plan uses."""
    return float(conversions.rdp_epsilon(losses, GRID_V1.orders, DELTA)[0])


def simulated() -> dict[str, Any]:
    """By reading, the share of runs that have been above it after 1, 2, … queries; shape (QUERIES,)."""
    mixture = Mixture(GRID_V1, prior.reading_prior(GRID_V1), DELTA)
    kinds: dict[str, Callable[[Any], float]] = {
        "fixed_plan": fixed_plan,
        "textbook": textbook,
        "odometer": mixture.odometer,
    }
    totals = [GRID_V1.orders * (RHO * queries) for queries in range(1, QUERIES + 1)]
    readings = {name: np.array([kind(losses) for losses in totals]) for name, kind in kinds.items()}
    first_above = {name: np.zeros(QUERIES) for name in readings}
    rng = np.random.default_rng(SEED)
    for _ in range(RUNS // BATCH):
        loss = np.cumsum(rng.standard_normal((BATCH, QUERIES)) / NOISE_MULTIPLIER + RHO, axis=1)
        for name, reading in readings.items():
            above = loss > reading
            first = above.argmax(axis=1)[above.any(axis=1)]
            first_above[name] += np.bincount(first, minlength=QUERIES)
    return {name: np.cumsum(counts) / RUNS for name, counts in first_above.items()}


def x_of(queries: float) -> float:
    """Pixels from the left, logarithmic in the number of queries."""
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(queries) / math.log(QUERIES)


def y_of(share: float) -> float:
    """Pixels from the top, logarithmic in the share of runs."""
    height = HEIGHT - TOP - BOTTOM
    return TOP + height * (1 - math.log(max(share, LOW) / LOW) / math.log(HIGH / LOW))


def drawing(shares: dict[str, Any]) -> str:
    """The SVG."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img" '
        'aria-label="Share of runs whose loss has been above a reading, by number of queries">'
    )
    parts = [opening, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for share in (0.0001, 0.001, 0.01, 0.1, 0.5):
        y = y_of(share)
        dash = ' stroke-dasharray="5 4" stroke="#222"' if share == DELTA else ' stroke="#ddd"'
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"{dash}/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * share:g} %</text>')
    for queries in (1, 10, 100, 1000, 4000):
        x = x_of(queries)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{queries:,}</text>')
    parts.append(
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 10}" text-anchor="middle">queries so far</text>'
    )
    parts.append(f'<text x="{right + 8}" y="{y_of(DELTA) + 4:.1f}">δ = 1 %, what was asked for</text>')
    moments = sorted({round(QUERIES ** (place / 120)) for place in range(121)})
    for name, share in shares.items():
        points = " ".join(
            f"{x_of(queries):.1f},{y_of(share[queries - 1]):.1f}"
            for queries in moments
            if share[queries - 1] >= LOW
        )
        end, colour = share[-1], COLOURS[name]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        label = f"{LABELS[name]}: {100 * end:.1f} %"
        below = 16 if name == "odometer" else 4
        parts.append(f'<text x="{right + 8}" y="{y_of(end) + below:.1f}" fill="{colour}">{label}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Simulate and write the file."""
    path = ROOT / "docs" / "plot" / "stopping.svg"
    shares = simulated()
    path.parent.mkdir(exist_ok=True)
    path.write_text(drawing(shares), "utf-8")
    found = ", ".join(f"{name} {100 * share[-1]:.2f} %" for name, share in shares.items())
    print(f"wrote {path.relative_to(ROOT)}: ever above, {found}")


if __name__ == "__main__":
    main()
