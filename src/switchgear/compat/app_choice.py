"""Chooses the app for a broker or connection that was written down for another library."""

from __future__ import annotations

import warnings

from switchgear.app.app import App
from switchgear.app.app_arguments import URL_VARIABLE, usual_urls
from switchgear.app.server_locations import ServerLocation, location_of
from switchgear.errors import ConfigError

__all__ = ["own_urls", "urls_for"]

_warned: set[str] = set()


def own_urls(broker: object) -> list[str]:
    """The URLs of Switchgear servers in a broker setting; none if it names a broker of another kind."""
    if isinstance(broker, App):
        return [location.url for location in broker.locations]
    urls = broker.replace(";", " ").split() if isinstance(broker, str) else []
    try:
        for url in urls:
            _location(url)
    except ConfigError:
        return []
    return urls


def urls_for(broker: object, what: str) -> list[str]:
    """The URLs that an app is made with: those of the broker setting, else SWITCHGEAR_URL, else the directory.

    Warns once if the setting names something else, because jobs do not go there.
    """
    urls = own_urls(broker)
    if urls:
        return urls
    urls = usual_urls()
    if broker is not None:
        kind = broker.partition(":")[0] + "://" if isinstance(broker, str) else type(broker).__name__
        text = f"{what} ({kind}) is not used: jobs go to {', '.join(urls)}; the variable {URL_VARIABLE} changes that"
        if text not in _warned:  # Python itself warns once for each line that the warning is about
            _warned.add(text)
            warnings.warn(text, stacklevel=4)
    return urls


def _location(url: str) -> ServerLocation:
    return location_of(url, None)
