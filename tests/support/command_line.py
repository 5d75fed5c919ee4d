"""The command line in this process, with no setting but those that a test gives."""

import os
from collections.abc import Callable
from typing import Any

from typer.testing import CliRunner, Result

from privacy_odometer.cli import app

Run = Callable[..., Result]


def runner(**environment: str) -> Run:
    """Runs commands with this environment, and checks their exit status (0 unless `status` is given)."""
    clean = {name: None for name in os.environ if name.startswith("ODOMETER_")}
    cli = CliRunner(env={**clean, "COLUMNS": "100", **environment})

    def run(*arguments: object, status: int = 0, **options: Any) -> Result:
        result = cli.invoke(app, [str(argument) for argument in arguments], **options)
        assert result.exit_code == status, (result.output, result.exception)
        return result

    return run
