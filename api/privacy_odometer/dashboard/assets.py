"""The files that the pages load: our modules and stylesheet, and two installed libraries.

The charting library (plotly, MIT) and Swagger UI (shipped by fastapi-offline, MIT) are Python packages
among our dependencies; their files are found through package metadata, without importing them, and served
from where pip put them. Nothing is fetched from another host, and no copy of them is in our tree.
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

STATIC: Final = Path(__file__).parent / "static"

_VENDORED: Final = {
    "plotly": ("plotly", "plotly/package_data", ("plotly.min.js",)),
    "swagger-ui": (
        "fastapi-offline",
        "fastapi_offline/static",
        ("swagger-ui-bundle.js", "swagger-ui.css"),
    ),
}
_FOREVER: Final = "public, max-age=31536000, immutable"
_GZIP_ABOVE_BYTES: Final = 1024


@dataclass(frozen=True)
class Asset:
    """One file as it is sent: body, gzipped body (None if that saves nothing), type and tag."""

    body: bytes
    gzipped: bytes | None
    media_type: str
    etag: str


@cache
def _own() -> tuple[str, dict[str, Path]]:
    """Our files by name, and a build id that changes when any of them does."""
    files = {path.name: path for path in sorted(STATIC.iterdir()) if path.is_file()}
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"app-{digest.hexdigest()[:12]}", files


@cache
def _vendored() -> dict[str, dict[str, Path]]:
    """The libraries' files by build id (library and version) and name. Raises RuntimeError if missing."""
    builds: dict[str, dict[str, Path]] = {}
    for library, (package, folder, names) in _VENDORED.items():
        try:
            installed = distribution(package)
        except PackageNotFoundError as error:
            raise RuntimeError(f"The dashboard needs the package {package!r}: pip install it.") from error
        files = {name: Path(str(installed.locate_file(f"{folder}/{name}"))) for name in names}
        for path in files.values():
            if not path.is_file():
                raise RuntimeError(
                    f"{package} {installed.version} does not ship {path.name}: install a version that does."
                )
        builds[f"{library}-{installed.version}"] = files
    return builds


def url(name: str) -> str:
    """The URL of an asset by its file name, with its version in it, so it may be cached for ever."""
    build, files = _own()
    if name in files:
        return f"/assets/{build}/{name}"
    for library, names in _vendored().items():
        if name in names:
            return f"/assets/{library}/{name}"
    raise KeyError(name)


def check() -> None:
    """Raise RuntimeError at start if a library is missing, before a page fails without it."""
    _vendored()


@cache
def _load(path: Path) -> Asset:
    body = path.read_bytes()
    small = gzip.compress(body, compresslevel=6, mtime=0) if len(body) > _GZIP_ABOVE_BYTES else None
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if path.suffix == ".js":  # some machines' tables say otherwise, and a module of another type will not run
        kind = "text/javascript"
    if kind.startswith("text/"):
        kind += "; charset=utf-8"
    return Asset(body, small, kind, f'"{hashlib.sha256(body).hexdigest()[:24]}"')


def serve(request: Request, build: str, name: str) -> Response | None:
    """The answer for `/assets/{build}/{name}`, or None if there is no such file.

    A page from before an upgrade may request an older build of ours. It gets the current file, uncached.
    """
    current, own = _own()
    files = own if build.startswith("app-") else _vendored().get(build, {})
    if name not in files:
        return None
    asset = _load(files[name])
    headers = {
        "cache-control": "no-cache" if build.startswith("app-") and build != current else _FOREVER,
        "etag": asset.etag,
        "vary": "accept-encoding",
        "x-content-type-options": "nosniff",
    }
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    body = asset.body
    if asset.gzipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
        body = asset.gzipped
        headers["content-encoding"] = "gzip"
    return Response(body, media_type=asset.media_type, headers=headers)
