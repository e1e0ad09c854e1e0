"""How far a reading walks: the project's files and calls it passes from its sampler to Kafka and back.

    make bench BENCH=moves

A daemon with one simulated cup, Mosquitto and librdkafka's own mock of Kafka runs under a profiler. A *move*
is a call of a function of the project from another file; *calls* are all. They are counted

- for a reading, in the sampler's and the forwarder's threads, from shortly before it is made until its
  PUBACK: the shortest of forty, since a turn of the loop more is chance; without what plays the weather;
- for what a second ``[[sensor]]`` adds to loading a config;
- from there until its driver is started.
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
_READINGS: Final = 40
_BEFORE_S, _AFTER_S = 0.05, 0.2
_START_S: Final = 3.0
_NOT_CUT_OFF: Final = 100


class Call(NamedTuple):
    at_s: float
    thread: str
    file: str
    function: str
    is_move: bool


class Calls(list[Call]):
    """Takes each call of a function of the project while it is in force, in threads begun meanwhile too."""

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        file, caller = frame.f_code.co_filename, frame.f_back
        if event == "call" and file.startswith(_OURS) and not file.startswith(_PLAYED):
            moves = caller is None or caller.f_code.co_filename != file
            name = threading.current_thread().name
            self.append(Call(time.monotonic(), name, file, frame.f_code.co_name, moves))

    def __enter__(self) -> Calls:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def show(what: str, calls: Iterable[Call]) -> None:
    found = list(calls)
    moves = sum(call.is_move for call in found)
    files = len({call.file for call in found})
    sys.stdout.write(f"{what}: {files} files, {moves} moves, {len(found)} calls\n")


def of_a_sensor(directory: Path, ours: dict[str, Any]) -> Iterable[Call]:
    """What a second sensor adds; the first time loads what is loaded once."""
    found = []
    for sensors in (1, 1, 2):
        cups = (cup(f"cup-{number}", 17 + number) for number in range(sensors))
        with Calls() as calls:
            load(write_config(directory, config_text(*cups, **ours)))
        found.append(Counter(call._replace(at_s=0.0) for call in calls))
    return (found[2] - found[1]).elements()


def main() -> None:
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as free:
        directory, port = Path(name), free.getsockname()[1]
        free.close()
        mosquitto = subprocess.Popen(("mosquitto", "-p", str(port)), stderr=subprocess.DEVNULL)
        kafka = {"bootstrap_servers": "mock:9092", "properties": {"test.mock.num.brokers": "1"}}
        ours = {"mqtt": {"host": "127.0.0.1", "port": port}, "kafka": kafka, "status": {"listen": ""}}
        try:
            show("a [[sensor]] to its config", of_a_sensor(directory, ours))
            path = write_config(directory, config_text(cup(interval_s=0.5), **ours))
            with Calls() as calls:
                daemon = build(load(path), path, {})
                stop = os.kill, (os.getpid(), signal.SIGTERM)
                threading.Timer(_START_S + _READINGS / 2, *stop).start()
                daemon.run(None)
        finally:
            mosquitto.terminate()
    made = next(at for at, call in enumerate(calls) if call.function == "make_sampler")
    begun = next(at for at, call in enumerate(calls) if call.thread == "sampler-cup")
    started = next(at for at, call in enumerate(calls) if at > begun and call.function == "read")
    to_driver = [call for call in calls[made:started] if call.thread == "sampler-cup"]
    wired = [
        call for call in calls[made:begun] if call.file.split("/")[-2] in ("sampling", "drivers", "hardware")
    ]
    show("to its running driver", wired + to_driver)
    readings = [call.at_s for call in calls if call.function == "publish" and call.thread == "sampler-cup"][
        2:
    ]
    walks = [
        [call for call in calls if -_BEFORE_S < call.at_s - at_s < _AFTER_S and call.thread != "MainThread"]
        for at_s in readings
    ]
    shortest = min((walk for walk in walks if len(walk) > _NOT_CUT_OFF), key=len)
    show("a reading to Kafka", shortest)


if __name__ == "__main__":
    main()
