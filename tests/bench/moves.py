"""How far a reading walks: the project's files and calls it passes from its sampler to Kafka and back.

    make bench BENCH=moves

Profiles a daemon with one simulated cup, Mosquitto and librdkafka's own mock of Kafka. A *move* is a call of
a function of the project from another file; *calls* are all. Of a reading they are those of the sampler's and
the forwarder's threads until its PUBACK: the fewest of forty, since a turn of the loop more is chance.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import gateway
from gateway.config import load
from gateway.daemon.build import build
from tests.support.config import config_text, cup, write_config

_TREE: Final = Path(gateway.__file__).parents[1]
_OURS: Final = tuple(f"{_TREE}/{room}/" for room in ("gateway", "drivers", "buffer", "cloud"))
_PLAYED: Final = f"{_TREE}/drivers/emulation/"
_RUN_S: Final = 23
_SAMPLER: Final = "sampler-cup"


class Call(NamedTuple):
    at_s: float
    thread: str
    file: str
    function: str
    is_move: bool


class Calls(list[Call]):
    """Takes each call of a function of the project, in threads begun meanwhile too, but for the weather's."""

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        file, caller = frame.f_code.co_filename, frame.f_back
        if event == "call" and file.startswith(_OURS) and not file.startswith(_PLAYED):
            is_move = caller is None or caller.f_code.co_filename != file
            name = threading.current_thread().name
            self.append(Call(time.monotonic(), name, file, frame.f_code.co_name, is_move))

    def __enter__(self) -> Calls:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def show(what: str, calls: Iterable[Call]) -> None:
    found = list(calls)
    files, moves = len({call.file for call in found}), sum(call.is_move for call in found)
    sys.stdout.write(f"{what}: {files} files, {moves} moves, {len(found)} calls\n")


def loading(path: Path, sensors: int, ours: dict[str, Any]) -> Counter[Call]:
    cups = (cup(f"cup-{each}", 17 + each) for each in range(sensors))
    write_config(path.parent, config_text(*cups, **ours))
    with Calls() as calls:
        load(path)
    return Counter(call._replace(at_s=0.0) for call in calls)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        mosquitto = subprocess.Popen(("mosquitto", "-p", str(port)), stderr=subprocess.DEVNULL)
        kafka = {"bootstrap_servers": "mock:9092", "properties": {"test.mock.num.brokers": "1"}}
        ours = {"mqtt": {"host": "127.0.0.1", "port": port}, "kafka": kafka, "status": {"listen": ""}}
        try:
            path = Path(name) / "gateway.toml"
            _, one, two = (loading(path, sensors, ours) for sensors in (1, 1, 2))
            show("a [[sensor]] to its config", (two - one).elements())
            write_config(path.parent, config_text(cup(interval_s=0.5), **ours))
            with Calls() as calls:
                daemon = build(load(path), path, {})
                threading.Timer(_RUN_S, os.kill, (os.getpid(), signal.SIGTERM)).start()
                daemon.run(None)
        finally:
            mosquitto.terminate()
    begun = next(at for at, call in enumerate(calls) if call.thread == _SAMPLER)
    made = next(at for at, call in enumerate(calls) if call.function == "make_sampler")
    wired = [call for call in calls[made:begun] if "/sampling/" in call.file or "/drivers/" in call.file]
    own = [call for call in calls if call.thread == _SAMPLER]
    show("to its running driver", wired + own[: [call.function for call in own].index("read")])
    times, others = [call.at_s for call in calls], [call for call in own if call.function == "publish"]
    around = (calls[bisect(times, each.at_s - 0.05) : bisect(times, each.at_s + 0.4)] for each in others[2:])
    walks = [[call for call in each if call.thread in (_SAMPLER, "forwarder")] for each in around]
    whole: list[list[Call]] = [walk for walk in walks if any(call.function == "puback" for call in walk)]
    show("a reading to Kafka", sorted(whole, key=len)[0])


if __name__ == "__main__":
    main()
