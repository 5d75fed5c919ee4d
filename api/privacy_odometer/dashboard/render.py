"""Renders templates, always with escaping and with the same strict security headers."""

from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from privacy_odometer.dashboard import assets

STRICT_POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Only our own files, no inline script or style, no other host. Swagger UI works with this too."""
CHART_POLICY: Final = STRICT_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""The page with the chart: plotly inserts style elements of its own. Scripts stay as strict as elsewhere."""

HEADERS: Final = {
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""On every page and redirect."""

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals["asset"] = assets.url


def page(template: str, *, status: int = 200, policy: str = STRICT_POLICY, **values: Any) -> HTMLResponse:
    """Render `template` with `values`; `who` (an Identity or None) is always among them."""
    body = _templates.get_template(template).render({"who": None, **values})
    return HTMLResponse(body, status_code=status, headers={**HEADERS, "content-security-policy": policy})
