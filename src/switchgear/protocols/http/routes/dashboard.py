"""The pages of the dashboard, where a listener has it.  They are no part of the interface that OpenAPI describes."""

from typing import Final

from switchgear.protocols.http.dashboard_pages import on_get_file, on_get_file_in_folder, on_get_page
from switchgear.protocols.http.routing import Route, RouteAnswer
from switchgear.verbs.access import ALL_ROLES

__all__ = ["DASHBOARD_ROUTES"]

HTML: Final = "text/html"
ASSET: Final = (RouteAnswer(200, "The file."), RouteAnswer(304, "It is the one that the client has."))

DASHBOARD_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/",
        ALL_ROLES,
        "Show the dashboard.",
        on_get_page,
        (RouteAnswer(200, "The page.", media=HTML),),
        tag="dashboard",
        is_public=True,
    ),
    Route(
        "GET",
        "/static/{digest}/{file}",
        ALL_ROLES,
        "Get a file of the dashboard.",
        on_get_file,
        ASSET,
        tag="dashboard",
        is_public=True,
    ),
    Route(
        "GET",
        "/static/{digest}/{folder}/{file}",
        ALL_ROLES,
        "Get a file in a folder of the dashboard.",
        on_get_file_in_folder,
        ASSET,
        tag="dashboard",
        is_public=True,
    ),
)
