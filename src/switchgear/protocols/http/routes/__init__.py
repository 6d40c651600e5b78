"""The route table: every request that the server answers, with its roles, parameters, bodies and answers.

A module for each resource has its rows.  They are not compiled, like the types that they name: the OpenAPI document is
made from them.
"""

from typing import Final

from switchgear.protocols.http.routes.dashboard import DASHBOARD_ROUTES
from switchgear.protocols.http.routes.jobs import JOB_ROUTES
from switchgear.protocols.http.routes.operators import OPERATOR_ROUTES
from switchgear.protocols.http.routes.server import SERVER_ROUTES
from switchgear.protocols.http.routes.submission import SUBMISSION_ROUTES
from switchgear.protocols.http.routes.watching import WATCHING_ROUTES
from switchgear.protocols.http.routes.workers import WORKER_ROUTES
from switchgear.protocols.http.routing import Route

__all__ = ["DASHBOARD_ROUTES", "ROUTES"]

ROUTES: Final[tuple[Route, ...]] = (
    *SERVER_ROUTES,
    *WATCHING_ROUTES,
    *SUBMISSION_ROUTES,
    *JOB_ROUTES,
    *WORKER_ROUTES,
    *OPERATOR_ROUTES,
)
