"""Other people's web servers in one: feeds to fetch, one of them broken, and a directory that wants to be pinged."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ET
from socketserver import ThreadingMixIn
from typing import Self
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

__all__ = ["BROKEN_FEED", "FEEDS", "Web"]

FEEDS = {
    "gardens": ("Gardens in winter", ["Hellebores", "What the frost is good for", "Pruning, part 1"]),
    "trains": ("Night trains", ["Berlin to Wien", "The last dining car"]),
}
BROKEN_FEED = "broken"


class Web(ThreadingMixIn, SimpleXMLRPCServer):
    """Listens on a free port of loopback while its block lasts: GET for feeds, XML-RPC for pings."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), requestHandler=_Handler, logRequests=False)
        self.pings: list[tuple[str, str]] = []  # the name and the address of each weblog that has news
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.register_function(self._ping, "weblogUpdates.ping")
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, name="web")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def _ping(self, name: object, address: object) -> dict[str, bool | str]:
        self.pings.append((str(name), str(address)))
        return {"flerror": False, "message": "Thanks for the ping."}


class _Handler(SimpleXMLRPCRequestHandler):
    rpc_paths = ("/RPC2",)

    def do_GET(self) -> None:  # noqa: N802  # a name that the base class looks for
        name = self.path.removeprefix("/feeds/").removesuffix(".xml")
        if name == BROKEN_FEED:
            body = _feed("gardens")[:200]  # as if the disk had been full when it was written
        elif name in FEEDS:
            body = _feed(name)
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/rss+xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _feed(name: str) -> bytes:
    title, headlines = FEEDS[name]
    rss = ET.Element("rss", version="2.0")
    channel = ET.SubElement(rss, "channel")
    ET.SubElement(channel, "title").text = title
    for number, headline in enumerate(headlines, 1):
        item = ET.SubElement(channel, "item")
        ET.SubElement(item, "title").text = headline
        ET.SubElement(item, "link").text = f"http://{name}.example/{number}"
        ET.SubElement(item, "guid").text = f"{name}-{number}"
    text: bytes = ET.tostring(rss, encoding="utf-8", xml_declaration=True)
    return text
