"""The grid of a thesis on MQTT and Kafka: topics, partitions and payloads, with Kafka and without.

    make bench BENCH=grid

One to five topics with 200 messages a second each, one and four partitions, payloads of 100 to 5,000
bytes: how long until Kafka has appended a message (produce) and until a consumer has it (fetch), the
processor time of all programs together, and bytes a second when as much is published as goes. Without
Kafka a subscriber of Mosquitto takes them, and produce is until Mosquitto's PUBACK. A round takes about
18 minutes. Writes docs/results/grid.jsonl and, from it, docs/results/grid.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from tests.bench import page
from tests.bench.bridges import Bridge, Servers, from_mqtt, measure, servers
from tests.bench.figures import Row
from tests.support.servers import unique_name

_RATE: Final = 200
"""Messages per second and topic."""
_SIZES: Final = (100, 500, 1_000, 2_000, 3_000, 4_000, 5_000)
_FLOOD_MESSAGES: Final = 20_000
_FLOOD_BYTES: Final = 20_000_000
"""What is published as fast as it goes, at most: the smaller of both."""


def cell(ours: Servers, bridge: Bridge | None, topics: int, size: int, seconds: float) -> Row:
    """Figures of one cell; without a bridge those of Mosquitto alone."""
    prefix, rate = bridge.prefix if bridge else unique_name("grid"), topics * _RATE
    paced = int(rate * seconds)
    flood = min(_FLOOD_MESSAGES, _FLOOD_BYTES // size, 20 * paced)
    figures: list[Row] = []
    for count, pace in ((paced, rate), (flood, 0)):
        with bridge.arrivals() if bridge else from_mqtt(ours, prefix) as arrivals:
            publisher = ours.publisher(prefix, count, size, rate=pace, topics=topics)
            figures.append(measure(ours, arrivals, publisher, bridge))
    return {
        "path": "mqtt+kafka" if bridge else "mqtt",
        "topics": topics,
        "partitions": len(bridge.ends()) // topics if bridge else "",
        "payload_bytes": size,
        **figures[0],
        "missing": sum(each["missing"] for each in figures),
        "bytes_per_s": figures[1]["rate"] * size,
    }


def one_round(topics: Sequence[int], sizes: Sequence[int], seconds: float) -> Iterator[Row]:
    """All cells; the gateway is started once for each number of topics and partitions."""
    with servers() as ours:
        for count in topics:
            for partitions in (1, 4):
                bridge = Bridge("gateway", ours, topics=count, partitions=partitions)
                try:
                    bridge.flow()
                    # Not counted: programs that have just been started take longer.
                    ours.publisher(bridge.prefix, 1_000, 100, rate=500, topics=count).communicate()
                    yield from (cell(ours, bridge, count, size, seconds) for size in sizes)
                finally:
                    bridge.close()
            yield from (cell(ours, None, count, size, seconds) for size in sizes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the results, and the page from them."""
    parser = argparse.ArgumentParser(description="a thesis' grid")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each paced cell")
    parser.add_argument("--topics", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(_SIZES))
    options = page.options(parser, arguments, rounds=1)
    call = partial(one_round, options.topics, options.sizes, options.seconds)
    page.record("grid", options, call, rate_per_topic=_RATE, seconds=options.seconds)


if __name__ == "__main__":
    main()
