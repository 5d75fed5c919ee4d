"""Starts the command line, once it is certain that `accountant` and `api` are ours.

This module has a name of its own so that it runs even where another distribution shadows both.
"""

import runpy
import sys
from pathlib import Path

EXIT_CONFIGURATION = 78


def main() -> None:
    """The `odometer` command. Exits with 78 when one of our packages is shadowed by another."""
    # By its path, since `import accountant` could run another's code.
    identity = runpy.run_path(str(Path(__file__).resolve().parent / "accountant" / "identity.py"))
    try:
        identity["check"]()
    except ImportError as error:
        print(error, file=sys.stderr)
        raise SystemExit(EXIT_CONFIGURATION) from None

    from api import cli

    cli.main()


if __name__ == "__main__":
    main()
