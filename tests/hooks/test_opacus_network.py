"""The Opacus guard when the network fails between it and a real service: no step without a known charge."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch

from odometer_client import Client, OutcomeUnknown
from odometer_client.errors import Unreachable
from odometer_client.testing import Service

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]


class LossyWire:
    """Passes connections to the service, one request each, and loses the next `lose` answers."""

    def __init__(self, service_url: str) -> None:
        self.lose = 0
        self.requests = 0
        where = urlsplit(service_url)
        self._service = (str(where.hostname), int(where.port or 80))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._listener.fileno() == -1:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, socket.create_connection(self._service) as service:
                request = _one_request(connection)
                service.sendall(request)
                answer = _all(service)  # the service has decided before the answer is lost
                self.requests += 1
                if self.lose:
                    self.lose -= 1
                else:
                    connection.sendall(answer)


def _one_request(connection: socket.socket) -> bytes:
    """A whole request, told to be the last on its connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    length = next(
        (int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return b"\r\n".join([*lines, b"Connection: close", b"", body])


def _all(service: socket.socket) -> bytes:
    received = b""
    while chunk := service.recv(65536):
        received += chunk
    return received


@pytest.fixture
def wire(service: Service) -> Iterator[LossyWire]:
    wire = LossyWire(service.url)
    yield wire
    wire.close()


@contextmanager
def through(url: str, service: Service, **options: Any) -> Iterator[Client]:
    with Client(url, service.admin_key, **options) as client:
        yield client


def test_a_lost_answer_is_charged_once_and_training_goes_on(
    wire: LossyWire,
    service: Service,
    new_training_dataset: Callable[..., str],
    new_job: Callable[..., Any],
    charged_steps: Callable[[str], int],
) -> None:
    dataset = new_training_dataset()
    with through(wire.url, service) as client:
        job = new_job(dataset, engine={"client": client, "block": 5})
        asked = wire.requests
        wire.lose = 2
        job.run(1)
        assert wire.requests - asked == 3
        assert job.guard.receipt.replayed
        job.run(4)
        job.guard.close()
    assert job.guard.steps == charged_steps(dataset) == 5


def test_an_unknown_outcome_stops_the_step_and_is_settled_by_the_next(
    wire: LossyWire,
    service: Service,
    new_training_dataset: Callable[..., str],
    new_job: Callable[..., Any],
    charged_steps: Callable[[str], int],
) -> None:
    dataset = new_training_dataset()
    with through(wire.url, service, attempts=2) as client:
        job = new_job(dataset, engine={"client": client, "block": 5})
        before = job.weights()
        wire.lose = 2
        with pytest.raises(OutcomeUnknown):
            job.run(1)
        assert all(torch.equal(one, other) for one, other in zip(before, job.weights(), strict=True))
        assert all(p.grad is None and p.summed_grad is None for p in job.optimizer.params)
        assert job.guard.steps == 0
        job.run(5)
        job.guard.close()
    assert job.guard.steps == charged_steps(dataset) == 5


def test_a_service_that_is_not_there_is_found_before_the_model_is_touched(
    service: Service, new_training_dataset: Callable[..., str], new_job: Callable[..., Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    dataset = new_training_dataset()
    with through(f"http://127.0.0.1:{port}", service, attempts=2) as client, pytest.raises(Unreachable):
        new_job(dataset, engine={"client": client})


def test_without_a_service_no_step_runs(
    wire: LossyWire,
    service: Service,
    new_training_dataset: Callable[..., str],
    new_job: Callable[..., Any],
    charged_steps: Callable[[str], int],
) -> None:
    dataset = new_training_dataset()
    with through(wire.url, service, attempts=2) as client:
        job = new_job(dataset, engine={"client": client})
        before = job.weights()
        wire.close()
        with pytest.raises(Unreachable):
            job.run(1)
    assert all(torch.equal(one, other) for one, other in zip(before, job.weights(), strict=True))
    assert not job.guard.stopped
    assert charged_steps(dataset) == 0
