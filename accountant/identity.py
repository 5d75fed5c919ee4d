"""Are `accountant` and `api` ours? Other distributions use these names; the wrong one must not keep a ledger.

Our packages always lie side by side, in a checkout as in an installation. Only the standard library is used
here, and nothing is imported to find out: a foreign package's code is not run.
"""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

_DISTRIBUTION = "privacy-odometer"
_HOME = Path(__file__).resolve().parent.parent
_MARKS = {"accountant": "identity.py", "api": "app.py"}
"""Our packages, each with a file that it has: without that it was overwritten or is half installed."""


class ForeignPackageError(ImportError):
    """A package that is not ours answers to one of our names; the message says which, where, what helps."""


def check(home: Path = _HOME) -> None:
    """Raise `ForeignPackageError` unless both packages would be imported from the folder `home`."""
    for name, mark in _MARKS.items():
        where = _folder(find_spec(name))
        if where is None:
            fault, advice = "cannot be found", f"install {_DISTRIBUTION} again"
        elif where != home / name:
            fault = f"is shadowed by another one in {where}; ours is in {home / name}"
            advice = (
                f"give {_DISTRIBUTION} a virtual environment of its own, or uninstall what owns the other one"
            )
        elif not (where / mark).is_file():
            fault = f"in {where} lacks {mark}: another distribution may have written over it"
            advice = f"install {_DISTRIBUTION} again, in a virtual environment of its own"
        else:
            continue
        raise ForeignPackageError(f"The package `{name}` of {_DISTRIBUTION} {fault}. What helps: {advice}.")


def _folder(spec: ModuleSpec | None) -> Path | None:
    """Where a package lies: the folder of its __init__ or, for a namespace package, its first folder."""
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve().parent
    return next((Path(folder).resolve() for folder in spec.submodule_search_locations or ()), None)
