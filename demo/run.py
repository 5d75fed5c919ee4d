"""Two real jobs against one served SQLite ledger, each until it is refused; then status and verify.

python demo/run.py            the ledger lives in a temporary folder
python demo/run.py --keep     it stays in data/demo.sqlite, for `odometer serve` and the dashboard
"""

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import queries
import torch
import training
from rich.console import Console

from odometer_client import Client
from odometer_client.testing import Service, serve, temporary_sqlite

ROOT = Path(__file__).resolve().parent.parent
DIGITS, DIABETES = "digits", "diabetes"
console = Console()


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Two real jobs against one served SQLite ledger.")
    parser.add_argument("--keep", action="store_true", help="keep the ledger in data/demo.sqlite")
    keep = parser.parse_args().keep
    torch.set_num_threads(1)  # the network is so small that threads only wait for each other
    with _store(keep=keep) as store, serve(store) as service:
        console.print(f"Privacy Odometer serves {store} on {service.url}")
        charger = _open_datasets(service)
        with Client(service.url, charger) as client:
            _train(client)
            queries.ask(client, DIABETES, console)
        environment = {**os.environ, "ODOMETER_URL": service.url, "ODOMETER_KEY": str(service.admin_key)}
        _odometer(["status"], environment)
        return _odometer(["verify", "--store", store], environment)


@contextlib.contextmanager
def _store(*, keep: bool) -> Iterator[str]:
    if not keep:
        with temporary_sqlite() as url:
            yield url
        return
    path = ROOT / "data" / "demo.sqlite"
    if path.exists():
        sys.exit(f"{path} is there already: move it away first, a ledger is never written over")
    path.parent.mkdir(exist_ok=True)
    yield f"sqlite:///{path}"


def _open_datasets(service: Service) -> str:
    """Create both datasets as the admin, and a key that may only charge."""
    with Client(service.url, service.admin_key) as admin:
        admin.create_dataset(
            DIGITS,
            unit="image",
            adjacency="zero_out",
            delta=1e-5,
            budgets=[{"name": "life", "kind": "approximate", "epsilon": 4, "delta": 1e-5}],
        )
        admin.create_dataset(
            DIABETES,
            unit="person",
            adjacency="add_remove",
            delta=1e-6,
            budgets=[{"name": "life", "kind": "pure", "epsilon": 2}],
        )
        return str(admin.create_key("charger", "demo jobs")["token"])


def _train(client: Client) -> None:
    console.rule("DP-SGD with Opacus")
    trained = training.train(client, DIGITS)
    odometer = client.odometer(DIGITS)
    console.print(f"refused: {trained.refused}")
    console.print(
        f"weights kept after {trained.steps} steps ({trained.charged} charged): "
        f"{trained.accuracy:.1%} of held-out digits right"
    )
    for name, meaning in (
        ("guarantee", "promised, whatever is asked and when it stops"),
        ("if_stopped_now", "known by now, stopping chosen on the way"),
        ("fixed_plan", "what other accountants print, for a plan fixed in advance"),
    ):
        reading = odometer.reading(name)
        console.print(f"  ε = {reading['value']:.3f} at δ = {reading['delta']:g}: {meaning}")


def _odometer(arguments: list[str], environment: dict[str, str]) -> int:
    """Run the `odometer` command of this environment, and say which."""
    console.rule(f"odometer {arguments[0]}")
    command = [str(Path(sys.executable).parent / "odometer"), *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
