"""The suite's own proxy, where its switch meets clients that are just connecting."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading

from cloud.local.process import free_port
from tests.faults.uplink import Uplink
from tests.support.servers import eventually


def test_clients_that_connect_while_it_closes_are_closed() -> None:
    connects, over = [0], threading.Event()
    port = free_port()

    def connect() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                connects[0] += 1

    clients = [threading.Thread(target=connect) for _ in range(2)]
    # Nothing listens behind it: a connection ends at once.
    with Uplink(port, free_port()) as uplink:
        for client in clients:
            client.start()
        for _ in range(30):
            uplink.close()
            uplink.open()
            before = connects[0]
            eventually(lambda: connects[0] - before, until=lambda n: n > 3, poll_s=0.001)  # noqa: B023
        over.set()
        for client in clients:
            client.join()
    # A transport that is garbage and open warns; warnings are errors.
    gc.collect()
