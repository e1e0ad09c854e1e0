"""The partition of a key, as Java's client computes it."""

from __future__ import annotations

import pytest

from cloud.kafka.readers import partition_of


@pytest.mark.parametrize(
    ("key", "murmur2"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_has_the_partition_that_java_gives_it(key: bytes, murmur2: int) -> None:
    """The values are those of Kafka's own UtilsTest."""
    assert partition_of(key, 1 << 31) == murmur2 & 0x7FFFFFFF
    assert partition_of(key, 7) == (murmur2 & 0x7FFFFFFF) % 7
