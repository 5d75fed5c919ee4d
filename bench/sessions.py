"""A million below answers of one session: what do they leave in the ledger, and what does each take?

Through the accountant in this process on a SQLite file, as the service asks it, beside durable charges.
Nothing may be written: totals and file stay as they are.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from odometer_accountant.service.accountant import Accountant

ANSWERS = 1_000_000
BAR = 1.0
"""An answer that is free costs no more than a durable charge; 0 when it left anything behind."""
SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}
RUN = {"kind": "above_threshold", "epsilon_threshold": 0.1, "epsilon_answers": 0.2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=ANSWERS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sessions-") as folder:
        path = Path(folder) / "ledger.sqlite"
        with Accountant.open(f"sqlite:///{path}") as accountant:
            document = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
            budget = {"name": "life", "kind": "pure", "epsilon": 1e6}
            accountant.create_dataset({**document, "budgets": [budget]}, "admin")
            one = accountant.open_session("d", {"session": SVT}, "open", "ada")[0]["session"]["id"]
            before = state(accountant, path)
            started = time.perf_counter()
            for _ in range(asked.answers):
                accountant.answer_session("d", one, {"above": False}, None, "ada")
            answer_us = (time.perf_counter() - started) / asked.answers * 1e6
            unchanged = state(accountant, path) == before
            started = time.perf_counter()
            for number in range(1000):
                accountant.charge("d", {"mechanism": RUN, "count": 1}, f"k{number}", "ada")
            charge_us = (time.perf_counter() - started) / 1000 * 1e6
    print(f"{asked.answers} answers below: {answer_us:.0f} µs each, nothing left in the ledger: {unchanged}")
    print(f"a charge, durable: {charge_us:.0f} µs")
    ratio = charge_us / answer_us if unchanged else 0.0
    print(f"sessions ratio={ratio:.3f} bar={BAR}")
    return 0 if ratio >= BAR else 1


def state(accountant: Accountant, path: Path) -> tuple[object, ...]:
    """The end of the ledger, its totals, and the bytes of the file and of what is beside it."""
    sizes = [(one.name, one.stat().st_size) for one in sorted(path.parent.iterdir())]
    return (
        accountant.store.load("d", ["totals/dataset", "sessions"]),
        accountant.odometer("d")["totals"],
        sizes,
    )


if __name__ == "__main__":
    sys.exit(main())
