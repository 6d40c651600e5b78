"""Finds the user whose process is at the other end of a loopback connection.

TCP does not tell, but the Linux kernel does: by netlink (`sock_diag`) for one socket, or in `/proc/self/net/tcp` for
all. A peer that is not found there has no known user.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Final

__all__ = ["can_tell_users", "is_same_user", "user_behind"]

Address = tuple[str, int]

# From linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_NETLINK: Final = 16
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ANY_COOKIE: Final = b"\xff" * 8
_HEADER: Final = struct.Struct("=IHHII")
_DIAG_REQUEST: Final = struct.Struct("=BBBBI")
_USER_AND_INODE: Final = struct.Struct("=II")
_USER_OFFSET: Final = _HEADER.size + 4 + 48 + 12
_UNMAPPED_USER: Final = 65_534  # a user that does not exist in this container
_PATIENCE_SECONDS: Final = 0.2  # the kernel answers within the call

_TABLE: Final = {socket.AF_INET: "/proc/self/net/tcp", socket.AF_INET6: "/proc/self/net/tcp6"}
# Reading a longer table would block the server for too long.
_MOST_TABLE_BYTES: Final = 4 * 1024 * 1024


def user_behind(peer: Address, here: Address) -> int | None:
    """The user id of the process that connected from `peer` to `here`; `None` if it cannot be known for certain."""
    if not sys.platform.startswith("linux"):
        return None
    for family, peer_host, own_host in _spellings(peer[0], here[0]):
        ends = (peer_host, peer[1]), (own_host, here[1])
        found = _ask_kernel(family, *ends)
        if found is None:
            found = _look_up(Path(_TABLE[family]), family, *ends)
        if found is not None:
            user, inode = found
            # A socket that its process has closed has no owner, and older kernels report root.
            return user if inode and user != _UNMAPPED_USER else None
    return None


def can_tell_users() -> bool:
    """Whether this system tells the user of a peer: it is tried with a connection of our own."""
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
            listener.settimeout(_PATIENCE_SECONDS)
            with socket.create_connection(listener.getsockname(), _PATIENCE_SECONDS) as client:
                return user_behind(client.getsockname(), client.getpeername()) is not None
    except OSError:
        return False


def is_same_user(user: int | None) -> bool:
    """Whether this is the server's own user, or root."""
    return user is not None and user in (0, os.geteuid())


def _spellings(peer: str, here: str) -> list[tuple[socket.AddressFamily, bytes, bytes]]:
    """The forms in which the kernel may list a connection: IPv4 can use IPv6 sockets."""
    try:
        addresses = [ipaddress.ip_address(host.partition("%")[0]) for host in (peer, here)]
    except ValueError:
        return []
    plain = [getattr(address, "ipv4_mapped", None) or address for address in addresses]
    if not all(address.is_loopback for address in plain) or len({address.version for address in plain}) != 1:
        return []
    peer_bytes, own_bytes = (address.packed for address in plain)
    if plain[0].version == 6:
        return [(socket.AF_INET6, peer_bytes, own_bytes)]
    mapped = bytes(10) + b"\xff\xff"
    return [(socket.AF_INET, peer_bytes, own_bytes), (socket.AF_INET6, mapped + peer_bytes, mapped + own_bytes)]


End = tuple[bytes, int]


def _ask_kernel(family: socket.AddressFamily, peer: End, here: End) -> tuple[int, int] | None:
    """The user and the inode of the peer's socket, or `None` without an answer."""
    body = (
        _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        + struct.pack(">HH", peer[1], here[1])
        + peer[0].ljust(16, b"\0")
        + here[0].ljust(16, b"\0")
        + bytes(4)  # any interface
        + _ANY_COOKIE
    )
    try:
        with socket.socket(_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as line:
            line.settimeout(_PATIENCE_SECONDS)
            line.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
            answer = line.recv(8192)
    except OSError:
        return None
    if len(answer) < _USER_OFFSET + _USER_AND_INODE.size or _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    # If there is no such connection, the kernel answers with a listening socket, which is not the peer.
    found = answer[_HEADER.size + 4 :]
    if found[:4] != struct.pack(">HH", peer[1], here[1]) or found[20 : 20 + len(here[0])] != here[0]:
        return None
    user, inode = _USER_AND_INODE.unpack_from(answer, _USER_OFFSET)
    return user, inode


def _look_up(table: Path, family: socket.AddressFamily, peer: End, here: End) -> tuple[int, int] | None:
    """The user and the inode of the peer's socket, from the table of all sockets."""
    wanted = f"{_written(*peer)} {_written(*here)}"
    try:
        with table.open(encoding="ascii") as file:
            lines = file.read(_MOST_TABLE_BYTES).splitlines()
    except (OSError, ValueError):
        return None
    for line in lines[1:]:
        words = line.split()
        if len(words) > 9 and f"{words[1]} {words[2]}" == wanted and words[7].isdigit() and words[9].isdigit():
            return int(words[7]), int(words[9])
    return None


def _written(host: bytes, port: int) -> str:
    """An address as in the table: words of four bytes in the machine's byte order."""
    words = struct.unpack(f"={len(host) // 4}I", host)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
