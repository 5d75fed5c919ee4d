"""What a person reads of an error: its numbers, the name that was meant, and what would work."""

import pickle
from typing import Any

import pytest

import odometer_client
from odometer_client import BudgetExceeded, Client
from odometer_client.documents import Receipt
from odometer_client.errors import UnknownDataset
from odometer_client.mechanisms import Gaussian, Laplace, PoissonSubsampled

LIFE = {"name": "life", "kind": "pure", "epsilon": 1}


@pytest.fixture
def client() -> Any:
    with Client("memory://") as found:
        yield found


def opened(client: Client, **budget: Any) -> None:
    client.create_dataset(
        "adult", unit="person", adjacency="add_remove", delta=1e-6, budgets=[{**LIFE, **budget}]
    )


def test_a_refusal_prints_its_numbers(client: Client) -> None:
    """Whoever logs the exception sees limit, spent and by how much it is short."""
    opened(client)
    client.charge("adult", Laplace(scale_over_sensitivity=2))
    with pytest.raises(BudgetExceeded) as refused:
        client.charge("adult", Laplace(scale_over_sensitivity=2), 2)
    said = str(refused.value)
    assert "life (pure): limit 1, spent 0.5, with this 1.5, short by 0.5" in said
    assert "What would fit: a count of at most 1" in said
    assert str(pickle.loads(pickle.dumps(refused.value))) == said
    assert refused.value.detail == "the charge does not fit: life of dataset adult"


def test_a_mechanism_that_never_fits_a_budget_is_told(client: Client) -> None:
    """DP-SGD has no pure ε: no count and no noise makes it fit, and the exception says why."""
    opened(client)
    step = PoissonSubsampled(base=Gaussian(noise_multiplier=1.1), sampling_rate=0.01)
    with pytest.raises(BudgetExceeded) as refused:
        client.charge("adult", step)
    said = str(refused.value)
    assert "the charge has no finite pure epsilon" in said
    assert "No count and no amount of noise would fit." in said


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Laplace(scale=10), "did you mean scale_over_sensitivity"),
        (
            lambda: Gaussian(sigma=5),
            "did you mean noise_multiplier (standard deviation of the noise",
        ),
        (lambda: Gaussian(noise_multipler=5), "did you mean noise_multiplier"),
        (lambda: Gaussian(xyz=5), "there are noise_multiplier"),
        (lambda: Gaussian(5), "write each parameter with its name: noise_multiplier"),
    ],
)
def test_a_wrong_parameter_names_the_right_one(make: Any, said: str) -> None:
    """The classes of mechanisms say what the service says of a wrong field."""
    with pytest.raises(TypeError) as wrong:
        make()
    assert said in str(wrong.value)


def test_a_misspelt_dataset_names_the_nearest(client: Client) -> None:
    """A typing error is not answered with how to create a dataset alone."""
    opened(client)
    for call in (
        lambda: client.charge("adlut", Gaussian(noise_multiplier=2)),
        lambda: client.odometer("Adult"),
        lambda: client.check("adutl", Gaussian(noise_multiplier=2)),
    ):
        with pytest.raises(UnknownDataset, match="did you mean adult"):
            call()
    with pytest.raises(UnknownDataset) as unknown:
        client.odometer("elsewhere")
    assert "did you mean" not in str(unknown.value)


def test_the_environment_says_where_the_service_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """`from_env` reads what the command line reads."""
    monkeypatch.setenv("ODOMETER_URL", "memory://")
    monkeypatch.delenv("ODOMETER_KEY", raising=False)
    with Client.from_env(attempts=2) as client:
        assert list(client.datasets()) == []
    monkeypatch.delenv("ODOMETER_URL")
    monkeypatch.setenv("ODOMETER_KEY", "po_k")
    with Client.from_env() as client:
        assert client.url == "http://127.0.0.1:8790"


def test_a_document_prints_as_what_it_is() -> None:
    """Members by name, without those that are null."""
    assert repr(Receipt({"sequence": 3, "by": None, "hash": "ab"})) == "Receipt(sequence=3, hash='ab')"


def test_the_version_can_be_asked() -> None:
    assert odometer_client.__version__.count(".") == 2
