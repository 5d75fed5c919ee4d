"""The names that `odometer_accountant` and `odometer_client` offer, and the cost of importing them."""

import subprocess
import sys

import odometer_accountant
import odometer_client


def test_every_public_name_can_be_imported() -> None:
    """What `__all__` lists exists, is sorted, and comes from the module that it is imported from."""
    names = odometer_accountant.__all__
    assert sorted(names) == names
    assert sorted(odometer_accountant._HOMES) == names
    for name in names:
        assert getattr(odometer_accountant, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(odometer_accountant, "Wrong")


def test_importing_the_package_imports_no_numpy() -> None:
    """The command line reads bounds and suggestions from it at each start."""
    script = "import sys, odometer_accountant, odometer_accountant.bounds; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_example_of_the_docstring_runs() -> None:
    """The two lines that a reader copies first."""
    from odometer_accountant import Accountant, Caller

    with Accountant.open("memory://") as accountant:
        dataset = {"name": "census", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
        accountant.create_dataset({**dataset, "odometer_only": True}, "root")
        body = {"mechanism": {"kind": "gaussian", "noise_multiplier": 8.0}, "count": 1}
        receipt, replayed = accountant.charge("census", body, "an-idempotency-key", Caller("ada"))
    assert (receipt["sequence"], replayed) == (2, False)


def test_every_public_name_of_the_client_can_be_imported() -> None:
    """`__all__` of the client is sorted, and each of its names exists."""
    names = odometer_client.__all__
    assert sorted(names) == names
    assert {*odometer_client._HOMES, *odometer_client._MODULES, "__version__"} == set(names)
    for name in names:
        assert getattr(odometer_client, name) is not None
    assert not hasattr(odometer_client, "Wrong")


def test_importing_the_client_package_imports_no_classes_of_mechanisms() -> None:
    """The command line imports words of the client at each start, and needs no class of a mechanism."""
    script = "import sys, odometer_client.wording; print('odometer_client.mechanisms' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
