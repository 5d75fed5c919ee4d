"""The ledger inside this process, without a server. Needs the package `privacy-odometer`, imported late."""

from odometer_client.calls import Answer, Request


class EmbeddedTransport:
    """Takes requests to an `Accountant` over a store of this process."""

    def __init__(self, url: str) -> None:
        raise NotImplementedError(f"embedded ledgers ({url}) are not built yet: start `odometer serve`")

    def send(self, request: Request) -> Answer:
        raise NotImplementedError(request.operation)

    def close(self) -> None:
        pass
