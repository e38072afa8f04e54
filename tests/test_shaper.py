"""The relay that stands for a slower network: its schedule by times it is told, and that it passes on every byte."""

from __future__ import annotations

import socket
import threading
from time import monotonic

import pytest

from pronghorn_bench import shaper
from pronghorn_bench.shaper import CHUNK, LAN, WAN, Line, Network

NETWORKS = [LAN, WAN]


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_large_transfers_take_their_bytes_at_the_rate_and_one_delay(network: Network) -> None:
    line = Line(network.bits_per_second, network.round_trip / 2)
    chunks = 1000
    dues = [line.arrive(CHUNK, 5.0) for _ in range(chunks)]
    assert dues == sorted(dues)
    wanted = network.transfer_seconds(chunks * CHUNK) + network.round_trip / 2
    assert dues[-1] - 5.0 == pytest.approx(wanted)
    # The first does not wait for the others.
    assert dues[0] - 5.0 == pytest.approx(network.transfer_seconds(CHUNK) + network.round_trip / 2)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_bytes_that_arrive_slowly_are_delayed_only(network: Network) -> None:
    line = Line(network.bits_per_second, network.round_trip / 2)
    for turn in range(100):
        # A line that was idle has saved nothing up.
        now = float(turn)
        assert line.arrive(1, now) - now == pytest.approx(network.round_trip / 2, abs=1e-6)


def test_a_sender_may_keep_the_line_busy() -> None:
    for network in NETWORKS:
        line = Line(network.bits_per_second, network.round_trip / 2)
        assert line.most > network.bits_per_second / 8 * network.round_trip


def test_the_relay_passes_on_every_byte_both_ways_and_the_end() -> None:
    sent = bytes(range(256)) * 20_000
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends: list[bytes] = []

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                got = read_all(connection)
                ends.append(got)
                connection.sendall(got[::-1])

        thread = threading.Thread(target=answer)
        thread.start()
        host, port = listener.getsockname()
        with shaper.shaped(f"{host}:{port}", WAN) as address:
            started = monotonic()
            where = address.rsplit(":", 1)
            with socket.create_connection((where[0], int(where[1]))) as client:
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                got = read_all(client)
            # There is no time that it must take at most: the machine may be busy.
            least = 2 * WAN.transfer_seconds(len(sent)) + WAN.round_trip
            assert monotonic() - started > 0.99 * least
        thread.join()
    assert ends == [sent]
    assert got == sent[::-1]


def test_the_relay_outlives_a_target_that_does_not_listen_yet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        target = probe.getsockname()
    with shaper.shaped(f"{target[0]}:{target[1]}", LAN) as address:
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as client:
            assert read_all(client) == b""
        with socket.create_server(target) as listener, socket.create_connection((host, int(port))) as client:
            server, _ = listener.accept()
            with server:
                client.sendall(b"later")
                client.shutdown(socket.SHUT_WR)
                assert read_all(server) == b"later"


def test_no_network_is_the_address_itself() -> None:
    with shaper.shaped("127.0.0.1:1", None) as address:
        assert address == "127.0.0.1:1"


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)
