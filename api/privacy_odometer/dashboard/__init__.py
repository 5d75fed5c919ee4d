"""The dashboard: sign in, overview, one page per dataset, and the offline API docs at /docs.

`router(doors)` is all that the service includes. Pages are shells made with Jinja; every number in
them is fetched by small ES modules from the same `/v1` API that everybody uses, with the sign-in cookie.
"""

from privacy_odometer.dashboard.pages import router
from privacy_odometer.dashboard.session import Doors, Identity

__all__ = ["Doors", "Identity", "router"]
