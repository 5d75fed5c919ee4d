"""`odometer serve`: one process that keeps a ledger and answers over HTTP."""

import errno
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from privacy_odometer.cli import errors
from privacy_odometer.cli.output import end, shown_store

if TYPE_CHECKING:
    from fastapi import FastAPI

    from privacy_odometer.settings import Settings

log = logging.getLogger("odometer.api")

BACKLOG: Final = 2048
GRACE_S: Final = 10
"""Seconds that requests under way have to end, once the service is told to."""
FILES: Final = 200
"""Files that the service has open beside its connections."""
KEEP_ALIVE_S: Final = 75
"""Seconds an idle connection is kept: longer than clients keep theirs, so that they close first."""


def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on; ODOMETER_HOST.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="N", help="Port; 0 takes a free one; ODOMETER_PORT."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the ledger is kept; ODOMETER_STORE.")
    ] = None,
    allow_volatile_store: Annotated[
        bool | None,
        typer.Option(
            "--allow-volatile-store",
            show_default=False,
            help="Serve even on a Redis that may lose what it acknowledged; ODOMETER_ALLOW_VOLATILE_STORE.",
        ),
    ] = None,
    witness: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="What remembers how far the ledger was, elsewhere than that; ODOMETER_WITNESS.",
        ),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="critical to debug; ODOMETER_LOG_LEVEL.")
    ] = None,
) -> None:
    """Keep a ledger and answer over HTTP, until told to end.

    The first start on a new ledger prints an admin key, once. Defaults: 127.0.0.1, port 8790,
    sqlite:///data/ledger.sqlite. Exit status: 70 when the ledger thread died, 78 when the settings or this
    machine do not let it start, 3 when the ledger cannot be opened for certain.
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
    """The settings of the environment, with what was given instead; wrong ones end the command."""
    from pydantic import ValidationError

    from privacy_odometer.settings import Settings

    try:
        return Settings(**given)
    except ValidationError as error:
        wrong = [
            f"  {_named(item['loc'], given)}: {item['msg']}, got {item['input']!r}"
            for item in error.errors(include_url=False)
        ]
        end("\n".join(["a setting is not valid", *wrong]), errors.CONFIGURATION)


def _named(location: tuple[int | str, ...], given: dict[str, Any]) -> str:
    name = str(location[0]) if location else "settings"
    return f"--{name.replace('_', '-')}" if name in given else f"ODOMETER_{name.upper()}"


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket: before the ledger is touched, so that a taken port changes nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Now, and not when the service is ready: of two on one port the second is told at once.
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener
    except OSError as error:
        _cannot_listen(host, port, error)


def _cannot_listen(host: str, port: int, error: OSError) -> NoReturn:
    why = {
        errno.EADDRINUSE: "it is in use. Is another odometer running? Take another with --port "
        "(`make serve PORT=9000`), or --port 0",
        errno.EACCES: "this user may not. Take a port above 1023",
        errno.EADDRNOTAVAIL: "this machine does not have that address. Try --host 127.0.0.1",
    }
    reason = why.get(error.errno or 0, error.strerror or str(error))
    end(f"cannot listen on {host} port {port}: {reason}.", errors.CONFIGURATION)


def _try_store(settings: "Settings") -> None:
    """Open and close the ledger, so that what is wrong with it is said in words and not by a traceback."""
    from odometer_accountant.errors import OdometerError
    from odometer_accountant.service.api_keys import KeyRing
    from odometer_accountant.stores import open_store
    from privacy_odometer.witness_setup import begin, open_witness, refuse_to_create

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


def _run(settings: "Settings", listener: socket.socket) -> int:
    """Serve until told to end; returns the exit status."""
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
    # uvicorn raises the signal that ended it once more, afterwards: then the status is ours to say.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        Server(config).run(sockets=[listener])
    except SystemExit as stopped:
        if stopped.code:
            return int(stopped.code)
    return errors.INTERNAL if app.state.writer_died else 0


def _allow_files(connections: int) -> None:
    """Let this process have a file for each connection, and some for itself, as far as it may say so."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            log.warning(
                "this process may open %d files, too few for %d connections: raise its limit (ulimit -n), "
                "or lower ODOMETER_CONNECTIONS_MAX",
                most,
                connections,
            )


def _stop(_number: int, _frame: object) -> None:
    raise SystemExit(0)


def _say_new(url: str) -> None:
    """A ledger that was made now has a full budget: whoever mistyped its name must see that."""
    if not url.startswith("memory:"):
        print(
            f"NEW LEDGER: {shown_store(url)} was empty. Nothing that was spent elsewhere is counted in it: "
            "if there is a ledger already, stop, and look at --store",
            flush=True,
        )


def _announce(app: "FastAPI", host: str, listener: socket.socket) -> None:
    if app.state.first_key is not None:
        _say_new(app.state.settings.store)
        print(f"admin key (shown once): {app.state.first_key}", flush=True)
        app.state.first_key = None
    shown = f"[{host}]" if ":" in host else host
    print(f"Privacy Odometer is serving on http://{shown}:{listener.getsockname()[1]}", flush=True)
