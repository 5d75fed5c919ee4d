"""GET /metrics: every number moves with what it counts, and is there when the ledger is not."""

import threading
from collections.abc import Iterator

import httpx
import pages
import pytest
from faulty import FaultyStore, before, stale
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from serving import ONE, Live, live

from odometer_accountant.errors import registry
from odometer_accountant.writer.stats import WriterStats
from odometer_client.keys import new_key
from privacy_odometer.metrics import OUTCOMES, outcome_of

TOO_MUCH = {**ONE, "count": 10**6}


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
def service(store: FaultyStore) -> Iterator[Live]:
    with live(store) as running:  # type: ignore[arg-type]
        running.open("d", rho=1e5)
        yield running
        store.heal()


def scraped(service: Live) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by its name and labels."""
    reply = service.ask("GET", "/metrics", None)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }


def number(service: Live, name: str, **labels: str) -> float:
    return scraped(service)[name, frozenset(labels.items())]


def charges(service: Live) -> dict[str, float]:
    found = scraped(service)
    return {
        outcome: found["odometer_charges_total", frozenset({("outcome", outcome)})] for outcome in OUTCOMES
    }


def test_each_answer_counts_as_one_outcome_and_one_latency(service: Live, store: FaultyStore) -> None:
    assert charges(service) == dict.fromkeys(OUTCOMES, 0)
    service.charge("d", "a")
    service.charge("d", "b")
    service.charge("d", "a")  # again
    service.charge("d", "c", TOO_MUCH)
    service.charge("d", "d", {"zzz": 1})
    service.charge("nowhere", "e")
    service.charge("d", "f", role="reader")
    store.fail(before, "append")
    service.charge("d", "g")
    expected = {"admitted": 2, "replayed": 1, "refused": 1, "unsure": 1, "invalid": 3}
    assert charges(service) == expected
    for outcome, count in expected.items():
        assert number(service, "odometer_charge_seconds_count", outcome=outcome) == count
        assert number(service, "odometer_charge_seconds_sum", outcome=outcome) > 0


def test_a_latency_falls_into_every_bucket_above_it(service: Live) -> None:
    service.charge("d", "a")
    found = scraped(service)
    buckets = sorted(
        (float(dict(labels)["le"]), value)
        for (name, labels), value in found.items()
        if name == "odometer_charge_seconds_bucket" and ("outcome", "admitted") in labels
    )
    assert buckets[-1] == (float("inf"), 1)
    assert [value for _, value in buckets] == sorted(value for _, value in buckets)


@pytest.mark.parametrize("code", sorted(registry()))
def test_every_error_has_an_outcome_and_only_a_budget_refuses(code: str) -> None:
    """What leaves open whether something was charged is unsure, never invalid."""
    kind = registry()[code]
    expected = "refused" if code == "budget-exceeded" else "unsure" if kind.status >= 500 else "invalid"
    assert outcome_of(kind("why")) == expected


def test_what_waits_for_a_hanging_append_is_seen_without_the_store(service: Live, store: FaultyStore) -> None:
    """One append hangs, two charges wait: the page comes at once and says so."""
    taken = number(service, "odometer_teller_batch_size_count")
    store.fail(store.hang, "append")
    asking = [threading.Thread(target=_charge, args=(service,)) for _ in range(3)]
    asking[0].start()
    assert store.called.wait(10)
    for thread in asking[1:]:
        thread.start()
    while number(service, "odometer_teller_waiting") < 2:
        assert any(thread.is_alive() for thread in asking)
    assert number(service, "odometer_teller_stuck_seconds") > 0
    assert number(service, "odometer_teller_batch_size_count") == taken + 1
    store.heal()
    for thread in asking:
        thread.join(30)
    while number(service, "odometer_teller_stuck_seconds") > 0:  # the last answer goes out a moment before
        assert number(service, "odometer_teller_stuck_seconds") < 10
    assert number(service, "odometer_teller_waiting") == 0
    assert number(service, "odometer_teller_batch_size_count") == taken + 2
    assert number(service, "odometer_teller_batch_size_bucket", le="2.0") == taken + 2
    assert charges(service)["admitted"] == 3


def _charge(service: Live) -> None:
    headers = {"Authorization": f"Bearer {service.keys['charger']}", "Idempotency-Key": new_key()}
    assert httpx.post(f"{service.url}/v1/datasets/d/charges", json=ONE, headers=headers).status_code == 201


def test_stale_heads_and_failed_appends_are_counted_apart(service: Live, store: FaultyStore) -> None:
    store.fail(stale, "append")
    assert service.charge("d", "a").status_code == 503
    stale_heads = number(service, "odometer_teller_stale_heads_total")
    assert stale_heads > 1
    assert number(service, "odometer_teller_appends_failed_total") == 0
    store.fail(before, "append")
    assert service.charge("d", "b").status_code == 503
    assert number(service, "odometer_teller_stale_heads_total") == stale_heads
    assert number(service, "odometer_teller_appends_failed_total") == 1


def test_a_writer_that_is_gone_is_not_alive(service: Live) -> None:
    assert number(service, "odometer_teller_alive") == 1
    service.app.state.accountant.writer.close()
    assert number(service, "odometer_teller_alive") == 0


def test_frozen_ledgers_are_counted_and_forgotten_when_thawed(service: Live) -> None:
    counts: WriterStats = service.app.state.accountant.writer.stats
    counts.froze("d")
    counts.froze("d")
    counts.froze("e")
    assert number(service, "odometer_ledger_frozen_total") == 2
    assert number(service, "odometer_ledgers_frozen") == 2
    counts.thawed("d")
    assert number(service, "odometer_ledger_frozen_total") == 2
    assert number(service, "odometer_ledgers_frozen") == 1


@pytest.mark.parametrize(("size", "place"), [(1, 0), (2, 1), (3, 2), (4, 2), (255, 8), (256, 8), (257, 9)])
def test_a_batch_is_counted_under_the_least_power_of_two_that_holds_it(size: int, place: int) -> None:
    counts = WriterStats()
    counts.batch(size)
    assert counts.batch_sizes == [int(i == place) for i in range(10)]
    assert counts.commands == size


def test_no_dataset_principal_or_key_stands_on_the_page(service: Live) -> None:
    """Anyone who may scrape reads it, and there may be any number of datasets."""
    service.open("a-name-of-a-dataset")
    service.charge("a-name-of-a-dataset", "a-key-of-a-charge")
    text = service.ask("GET", "/metrics", None).text
    assert "a-name-of-a-dataset" not in text
    assert "a-key-of-a-charge" not in text
    assert {name for _, labels in scraped(service) for name, _ in labels} == {"outcome", "le"}


def test_two_services_in_one_process_count_apart_and_leave_the_global_registry_alone(service: Live) -> None:
    service.charge("d", "a")
    with live() as other:
        assert charges(other)["admitted"] == 0
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("odometer")]


def test_every_metric_stands_in_the_docs(service: Live) -> None:
    page = (pages.ROOT / "docs" / "operations.md").read_text("utf-8")
    text = service.ask("GET", "/metrics", None).text
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE odometer")]
    assert families
    assert not [name for name in families if f"`{name}`" not in page]


@pytest.mark.parametrize(
    ("request_", "path"), [("hold", "holds"), ("charge", "charges"), ("session", "sessions")]
)
def test_every_refusal_is_counted_by_its_reason_and_logged_once(
    service: Live, caplog: pytest.LogCaptureFixture, request_: str, path: str
) -> None:
    """Whatever was asked: a charge, one ahead of the work, or a session."""
    service.open("small", rho=1e-9)
    sparse = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}
    bodies = {"sessions": {"session": sparse}, "holds": {**ONE, "expires_in_s": 60}, "charges": ONE}
    asked = {"json": bodies[path], "headers": {"Idempotency-Key": "k"}}
    with caplog.at_level("INFO", "odometer.api"):
        reply = service.ask("POST", f"/v1/datasets/small/{path}", "charger", **asked)
    assert reply.status_code == 409, reply.text
    assert number(service, "odometer_refusals_total", request=request_, reason="budget-exceeded") == 1
    assert charges(service)["refused"] == 1
    assert [text for text in caplog.messages if "refused" in text and f" a {request_} of small" in text]
    assert sum("refused" in text for text in caplog.messages) == 1


def test_a_hold_counts_as_a_charge_and_its_settlement_does_not(service: Live) -> None:
    """A hold is a charge ahead of the work: admitted, replayed or refused as one."""
    body, headers = {**ONE, "expires_in_s": 60}, {"Idempotency-Key": "k"}
    held = service.ask("POST", "/v1/datasets/d/holds", "charger", json=body, headers=headers)
    again = service.ask("POST", "/v1/datasets/d/holds", "charger", json=body, headers=headers)
    assert (held.status_code, again.status_code) == (201, 200)
    settle = f"/v1/datasets/d/holds/{held.json()['hold']['id']}/settlement"
    assert service.ask("POST", settle, "charger", json={"used": 1}).status_code == 200
    assert service.ask("POST", settle, "charger", json={"used": 0}).status_code == 409
    assert charges(service) == {**dict.fromkeys(OUTCOMES, 0), "admitted": 1, "replayed": 1}
    assert number(service, "odometer_refusals_total", request="settlement", reason="hold-settled") == 1
