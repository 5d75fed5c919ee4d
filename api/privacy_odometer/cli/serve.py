"""`odometer serve`: the service, one process that keeps a ledger and answers over HTTP."""

import errno
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from privacy_odometer.cli import errors
from privacy_odometer.cli.connection import shown_store
from privacy_odometer.cli.errors import end

if TYPE_CHECKING:
    from fastapi import FastAPI

    from privacy_odometer.settings import Settings

log = logging.getLogger("odometer.api")

BACKLOG: Final = 2048
GRACE_S: Final = 10
"""Seconds that running requests have to end after the service was told to stop."""
FILES: Final = 200
"""Open files that the service needs beside its connections."""
KEEP_ALIVE_S: Final = 75
"""Seconds that an idle connection is kept. Longer than clients keep theirs, so that they close first."""


def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The address to listen on. Setting: ODOMETER_HOST.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="N", help="The port; 0 takes a free one. Setting: ODOMETER_PORT."
        ),
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store of the ledger. Setting: ODOMETER_STORE.")
    ] = None,
    allow_volatile_store: Annotated[
        bool | None,
        typer.Option(
            "--allow-volatile-store",
            show_default=False,
            help="Serve even on a Redis that may lose acknowledged writes. Setting: "
            "ODOMETER_ALLOW_VOLATILE_STORE.",
        ),
    ] = None,
    witness: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="A file, apart from the store, that records the last entries of the ledger, so that an "
            "older copy is recognised. Setting: ODOMETER_WITNESS.",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL", help="critical, error, warning, info or debug. Setting: ODOMETER_LOG_LEVEL."
        ),
    ] = None,
) -> None:
    """Run the service: keep a ledger and answer over HTTP until stopped.

    The first start on a new ledger prints an admin key, only once. Defaults: 127.0.0.1, port 8790,
    sqlite:///data/ledger.sqlite. Exit status 3: the ledger cannot be opened safely; 70: the ledger thread
    died; 78: the service cannot start with these settings or on this machine.
    """
    given = {
        "host": host,
        "port": port,
        "store": store,
        "allow_volatile_store": allow_volatile_store,
        "log_level": log_level,
        "witness": witness,
    }
    from privacy_odometer.witness_setup import default_witness  # imports numpy: not for --help

    settings = read_settings(**{name: value for name, value in given.items() if value is not None})
    logging.basicConfig(
        level=settings.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    if not settings.witness:
        settings = settings.model_copy(update={"witness": default_witness()})
    listener = _listen(settings.host, settings.port)
    with listener:
        _try_store(settings)
        raise typer.Exit(_run(settings, listener))


def read_settings(**given: Any) -> "Settings":
    """The settings of the environment; `given` replaces them. An invalid one ends the command."""
    from pydantic import ValidationError

    from privacy_odometer.settings import Settings

    try:
        return Settings(**given)
    except ValidationError as error:
        wrong = [
            f"  {_named(item['loc'], given)}: {item['msg']}, got {item['input']!r}"
            for item in error.errors(include_url=False)
        ]
        end("\n".join(["a setting is invalid", *wrong]), errors.CONFIGURATION)


def _named(location: tuple[int | str, ...], given: dict[str, Any]) -> str:
    name = str(location[0]) if location else "settings"
    return f"--{name.replace('_', '-')}" if name in given else f"ODOMETER_{name.upper()}"


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. It comes before the ledger, so that a port in use changes nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Listen now, and not when the service is ready: a second service on this port then fails at once.
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener
    except OSError as error:
        _cannot_listen(host, port, error)


def _cannot_listen(host: str, port: int, error: OSError) -> NoReturn:
    why = {
        errno.EADDRINUSE: "the port is in use. Is another odometer running? Choose another port with --port "
        "(`make serve PORT=9000`), or --port 0 for a free one",
        errno.EACCES: "this user may not use the port. Choose a port above 1023",
        errno.EADDRNOTAVAIL: "this machine does not have the address. Try --host 127.0.0.1",
    }
    reason = why.get(error.errno or 0, error.strerror or str(error))
    end(f"cannot listen on {host} port {port}: {reason}", errors.CONFIGURATION)


def _try_store(settings: "Settings") -> None:
    """Open and close the ledger once, so that an error is a text and not a traceback."""
    from odometer_accountant.errors import OdometerError
    from odometer_accountant.service.api_keys import KeyRing
    from odometer_accountant.stores import open_store
    from privacy_odometer.witness_setup import begin, open_witness, refuse_to_create

    # `_print_new` says so on the standard output, with the first key.
    store_log = logging.getLogger("odometer.stores.sqlite")
    store_log.addFilter(_not_about_a_new_ledger)
    try:
        refuse_to_create(settings.witness, settings.store)
        store = open_store(settings.store, allow_volatile=settings.allow_volatile_store)
        try:
            begin(store, open_witness(settings.witness, settings.store))
            KeyRing(store)
        finally:
            store.close()
    except OdometerError as error:
        end(f"{error.title}: {error.detail}", errors.UNSURE)
    except ValueError as error:
        end(f"store: {error}", errors.CONFIGURATION)
    finally:
        store_log.removeFilter(_not_about_a_new_ledger)


def _not_about_a_new_ledger(record: logging.LogRecord) -> bool:
    from odometer_accountant.stores.sqlite_file import NEW_LEDGER

    return record.msg != NEW_LEDGER


def _run(settings: "Settings", listener: socket.socket) -> int:
    """Serve until stopped; returns the exit status."""
    import uvicorn

    from privacy_odometer.app import create_app
    from privacy_odometer.connections import bounded, watched

    app = create_app(settings)
    _allow_files(settings.connections_max)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                _announce(app, settings.host, listener)

        async def main_loop(self) -> None:
            async with watched(self.server_state.connections):
                await super().main_loop()

    config = uvicorn.Config(
        app,
        http=bounded(settings.connections_max),
        log_config=None,
        log_level=settings.log_level,
        access_log=False,
        backlog=BACKLOG,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    # uvicorn raises the signal again after it has stopped. This handler then sets the exit status.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        Server(config).run(sockets=[listener])
    except SystemExit as stopped:
        if stopped.code:
            return int(stopped.code)
    return errors.INTERNAL if app.state.writer_died else 0


def _allow_files(connections: int) -> None:
    """Raise the limit on open files to one per connection and FILES more, as far as possible."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            log.warning(
                "this process may open only %d files, too few for %d connections: raise it (ulimit -n), "
                "or lower ODOMETER_CONNECTIONS_MAX",
                most,
                connections,
            )


def _stop(_number: int, _frame: object) -> None:
    raise SystemExit(0)


def _print_new(url: str) -> None:
    """Warn that the ledger is new and has its full budget: the name of the store may be mistyped."""
    if not url.startswith("memory:"):
        print(
            f"NEW LEDGER: {shown_store(url)} was empty. It counts nothing that was spent elsewhere: "
            "if you already have a ledger, stop the service and correct --store",
            flush=True,
        )


def _announce(app: "FastAPI", host: str, listener: socket.socket) -> None:
    if app.state.first_key is not None:
        _print_new(app.state.settings.store)
        print(f"admin key (shown once): {app.state.first_key}", flush=True)
        app.state.first_key = None
    shown = f"[{host}]" if ":" in host else host
    print(f"Privacy Odometer is serving on http://{shown}:{listener.getsockname()[1]}", flush=True)
