"""What a ledger of grid 2 says of a dataset, its budgets and its charges never changes.

`python -m tests.golden.test_grid_2` wrote `ledger/grid_2.json` once, by the version that brought the grid.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores.memory import MemoryStore

FILE = Path(__file__).parent / "ledger" / "grid_2.json"
OPENED: dict[str, Any] = {
    "name": "d",
    "unit": "person",
    "adjacency": "add_remove",
    "delta": 1.2345678901234567e-5,
    "budgets": [
        {"name": "life", "kind": "approximate", "epsilon": 2.302585092994046, "delta": 1.2345678901234567e-5},
        {
            "name": "sums",
            "kind": "approximate",
            "epsilon": 100,
            "delta": 1e-5,
            "delta_add": 1e-5,
            "window": "day",
        },
    ],
}
CHARGES: list[dict[str, Any]] = [
    {"mechanism": {"kind": "pure", "epsilon": 0.3333333333333333}, "count": 3},
    {"mechanism": {"kind": "zcdp", "rho": 0.012345678901234567}, "count": 1},
    {"mechanism": {"kind": "gdp", "mu": 0.09090909090909091}, "count": 2},
    {"mechanism": {"kind": "approximate", "epsilon": 0, "delta": 1.2345678901234566e-9}, "count": 7},
    {
        "mechanism": {"kind": "renyi_curve", "orders": [2, 8], "epsilons": [0.1, 0.3333333333333333]},
        "count": 1,
    },
]


def said() -> dict[str, Any]:
    """What the entries say."""
    with Accountant(MemoryStore()) as accountant:
        accountant.create_dataset({**OPENED, "budgets": [], "odometer_only": True, "name": "c"}, "root")
        accountant.create_dataset(OPENED, "root")
        for number, charge in enumerate(CHARGES):
            accountant.charge("c", charge, f"k{number}", "ada")
        opened = json.loads(accountant.store.entries("d", 0, 1)[0].body)
        charged = [json.loads(row.body) for row in accountant.store.entries("c", 1, 100)]
    names = ("grid_version", "delta", "delta_add", "delta_mix", "weights")
    return {
        "dataset": {name: opened["dataset"][name] for name in names},
        "budgets": {name: entry["fixed"] for name, entry in opened["budgets"].items()},
        "charges": [entry["command"]["charges"] for entry in charged],
        "losses": [entry["losses"] for entry in charged],
    }


@pytest.mark.parametrize("part", ["dataset", "budgets", "charges", "losses"])
def test_it_says_what_it_said(part: str) -> None:
    assert said()[part] == json.loads(FILE.read_text("utf-8"))[part]


def test_the_exact_coordinates_are_the_products_of_the_decimals() -> None:
    """Pure, rho, mu squared and delta as whole units, by hand."""
    losses = [line.split("|")[0].split(" ")[-4:] for (line,) in json.loads(FILE.read_text("utf-8"))["losses"]]
    assert losses[0][0] == str(3 * 3333333333333333 * 10**14)
    assert losses[1][1] == str(12345678901234567 * 10**12)
    assert losses[2][2] == str(2 * 9090909090909091**2 * 10**26)
    assert losses[3][3] == str(7 * 12345678901234566 * 10**5)


if __name__ == "__main__":
    FILE.write_text(json.dumps(said(), indent=1, sort_keys=True) + "\n", "utf-8")
