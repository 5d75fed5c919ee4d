"""Interactive API documentation at /docs: Swagger UI from an installed package, no other host."""

from starlette.requests import Request
from starlette.responses import Response

from privacy_odometer.dashboard.render import page


def page_of_docs(request: Request) -> Response:
    """The page; its script reads the schema's URL from the markup. Open to all, as the schema is."""
    return page("docs.html", openapi_url=request.app.openapi_url)
