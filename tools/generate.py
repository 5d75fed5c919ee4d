"""Write what is generated from the service's registries (client modules, reference pages), or check it.

python tools/generate.py           writes
python tools/generate.py --check   writes nothing, exits 1 when a file is stale
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "clients" / "python" / "src" / "odometer_client"
DOCS = ROOT / "docs"
STATIC = ROOT / "api" / "privacy_odometer" / "dashboard" / "static"


def files() -> dict[Path, Callable[[], str]]:
    """Every generated file with the function that makes its text; those of the client come first."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
    from budget_kinds import client_module, dashboard_script
    from client_errors import errors_module
    from client_mechanisms import mechanisms_module, parameter_names_module
    from client_operations import operations_module
    from docs_architecture import architecture_page, packages_picture
    from docs_cli import cli_page
    from docs_mechanisms import mechanisms_page
    from docs_reference import errors_page, http_page, settings_page

    return {
        PACKAGE / "budget_kinds.py": client_module,
        STATIC / "kinds.js": dashboard_script,
        PACKAGE / "errors.py": errors_module,
        PACKAGE / "mechanisms.py": mechanisms_module,
        PACKAGE / "parameter_names.py": parameter_names_module,
        PACKAGE / "operations.py": operations_module,
        DOCS / "architecture.md": partial(architecture_page, DOCS / "architecture.md"),
        DOCS / "pictures" / "packages.svg": packages_picture,
        DOCS / "cli.md": cli_page,
        DOCS / "errors.md": errors_page,
        DOCS / "http.md": partial(http_page, DOCS / "http.md"),
        DOCS / "mechanisms.md": mechanisms_page,
        DOCS / "settings.md": settings_page,
    }


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Write what is generated from the registries.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    check = parser.parse_args().check
    stale = 0
    for path, make in files().items():
        content = make()
        if path.is_file() and path.read_text("utf-8") == content:
            continue
        stale += 1
        if check:
            print(f"stale: {path.relative_to(ROOT)} (run python tools/generate.py)")
        else:
            path.write_text(content, "utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
