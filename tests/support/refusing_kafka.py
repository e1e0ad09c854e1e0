"""librdkafka's mock of a Kafka cluster, with the errors that a test wants."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

import confluent_kafka
from confluent_kafka import Producer

_PRODUCE: Final = 0


def librdkafka() -> ctypes.CDLL:
    """The librdkafka that the Python client has loaded."""
    loaded = {
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "librdkafka" in line.rpartition("/")[2]
    }
    assert len(loaded) == 1, f"loaded: {loaded} by confluent_kafka {confluent_kafka.version()}"
    library = ctypes.CDLL(loaded.pop())
    library.rd_kafka_test_fatal_error.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    library.rd_kafka_name.argtypes = (ctypes.c_void_p,)
    library.rd_kafka_name.restype = ctypes.c_char_p
    return library


class RefusingKafka:
    """librdkafka's mock cluster, which refuses so many of the next batches with a code."""

    def __init__(self) -> None:
        self._owner = Producer({"bootstrap.servers": "127.0.0.1:9", "test.mock.num.brokers": 1})
        self._library = librdkafka()
        for name, result in (
            ("rd_kafka_handle_mock_cluster", ctypes.c_void_p),
            ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p),
        ):
            function = getattr(self._library, name)
            function.argtypes, function.restype = (ctypes.c_void_p,), result
        client = ctypes.c_void_p.from_address(id(self._owner) + object.__basicsize__)
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_handle_mock_cluster(client))
        self.servers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def refuse(self, code: int, batches: int) -> None:
        push = self._library.rd_kafka_mock_push_request_errors_array
        push.argtypes = (ctypes.c_void_p, ctypes.c_int16, ctypes.c_size_t, ctypes.c_void_p)
        push(self._cluster, _PRODUCE, batches, (ctypes.c_int * batches)(*[code] * batches))
