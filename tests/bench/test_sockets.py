"""Bytes that this process wrote to its sockets, as the kernel counts them."""

import socket

import pytest

from thinwire.bench.sockets import bytes_written


@pytest.mark.skipif(bytes_written() is None, reason="this kernel does not count socket bytes")
def test_socket_bytes_are_exactly_what_was_written() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outgoing = socket.create_connection(listener.getsockname())
        incoming, _ = listener.accept()
    with outgoing, incoming:
        before = bytes_written()
        assert before is not None
        outgoing.setblocking(False)
        written = outgoing.send(bytes(10_000_000))  # more than fits: some wait to be sent
        assert bytes_written() == before + written
        incoming.sendall(b"back")
        assert bytes_written() == before + written + 4
