"""Bytes that this process wrote to and read from its TCP sockets, as the kernel counts them.

Payload only, without headers and retransmissions, and without anybody else's traffic: the same
number every time for the same work, with or without links of our own. A backend's framing of its
messages is payload to the kernel.
"""

import os
import socket
import stat
import struct
import sys
from pathlib import Path

# struct tcp_info of linux/tcp.h; the kernel only ever appends to it.
_RECEIVED = struct.Struct("=128xQ")
_NOTSENT = struct.Struct("=144xI")  # bytes written that still wait
_SENT = struct.Struct("=200xQQ")  # bytes sent, and those of them sent again
_ENOUGH = _SENT.size


def bytes_written() -> int | None:
    """Over all open TCP sockets of this process; None where the kernel does not tell."""
    counted = socket_bytes()
    return None if counted is None else counted[0]


def socket_bytes() -> tuple[int, int] | None:
    """Bytes written and received over all open TCP sockets of this process."""
    if sys.platform != "linux":
        return None
    written = received = 0
    for name in [path.name for path in Path("/proc/self/fd").iterdir()]:
        try:
            counts = _counts(int(name))
        except OSError:
            continue  # closed meanwhile
        written, received = written + counts[0], received + counts[1]
    return written, received


def _counts(descriptor: int) -> tuple[int, int]:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return 0, 0
    borrowed = socket.socket(fileno=descriptor)
    try:
        if borrowed.family not in (socket.AF_INET, socket.AF_INET6):
            return 0, 0
        info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ENOUGH)
    finally:
        borrowed.detach()  # it is not ours to close
    if len(info) < _ENOUGH:
        return 0, 0
    (waiting,) = _NOTSENT.unpack_from(info)
    sent, again = _SENT.unpack_from(info)
    (received,) = _RECEIVED.unpack_from(info)
    return int(sent - again + waiting), int(received)
