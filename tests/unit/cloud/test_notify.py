"""One target: its position in Kafka is kept, and nothing that goes wrong ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest

import cloud.notify
from cloud.config import load
from cloud.kafka.readers import KEEP_EVERY_S, Partition, TopicReader
from cloud.notify import Message, Opens, Sent, Target
from tests.support.commands import notify

PLACE: Partition = ("gateway.alerts", 0)


class Kafka:
    """A partition in which nothing comes."""

    def __init__(self, stopping: threading.Event | None = None) -> None:
        self.begun = {PLACE: 7}
        self.committed: dict[Partition, int] = {}
        self.commits: list[dict[Partition, int]] = []
        self._stopping = stopping

    def read(self, _timeout_s: float) -> None:
        if self._stopping is not None:
            self._stopping.set()

    def commit(self, positions: dict[Partition, int]) -> None:
        self.commits.append(dict(positions))
        self.committed |= positions

    def flush(self) -> None:
        """Nothing is being committed."""

    def close(self) -> None:
        """End."""


def write(directory: Path, *names: str) -> Path:
    path = directory / "cloud.toml"
    targets = "".join(f'[notify.{name}]\nurl = "json://127.0.0.1/"\n' for name in names)
    path.write_text(f'[kafka]\nbootstrap_servers = "127.0.0.1:1"\n{targets}')
    path.chmod(0o600)
    return path


def target(directory: Path, reader: Callable[[], TopicReader], monotonic: Callable[[], float]) -> Target:
    def send(message: Message) -> bool:
        raise AssertionError(message)

    config = load(write(directory, "olga")).notify["olga"]
    sent = partial(Sent, directory / "sent.db", "olga")
    return Target("olga", config, send, Opens(sent, reader), monotonic=monotonic)


def test_a_position_is_committed_again_while_nothing_comes(tmp_path: Path) -> None:
    """Kafka forgets it a week after the last commit."""
    now_s, kafka, stopping = [0.0], Kafka(), threading.Event()

    def read(_timeout_s: float) -> None:
        now_s[0] += 3600
        if now_s[0] >= 30 * 86_400:
            stopping.set()

    kafka.read = read  # type: ignore[method-assign]
    target(tmp_path, lambda: cast(TopicReader, kafka), lambda: now_s[0]).run(stopping)
    assert all(each == {PLACE: 7} for each in kafka.commits)
    assert len(kafka.commits) == pytest.approx(30 * 86_400 / KEEP_EVERY_S, abs=2)


def test_an_error_that_nobody_expects_is_logged_and_the_target_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud.notify._AGAIN_S", (0.01, 0.01))
    stopping, opened = threading.Event(), list[Kafka]()

    def reader() -> TopicReader:
        opened.append(Kafka(stopping))
        if len(opened) == 1:
            raise KeyError("a defect")
        return cast(TopicReader, opened[-1])

    target(tmp_path, reader, time.monotonic).run(stopping)
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == [
        "event=notify.defect target=olga"
    ]
    assert opened[1].committed == {PLACE: 7}


def test_a_thread_that_cannot_start_ends_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else the process would run on, with some targets, and nobody would see that others are missing."""
    ended = threading.Event()

    class Waits:
        def run(self, stopping: threading.Event) -> None:
            assert stopping.wait(20)
            ended.set()

    starts, start = iter((True, False)), threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if not next(starts):
            raise RuntimeError("can't start new thread")
        start(thread)

    config = write(tmp_path, "a", "b")
    monkeypatch.setattr(cloud.notify, "Sender", lambda *_: None)
    monkeypatch.setattr(cloud.notify, "_target", lambda *_: Waits())
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(RuntimeError, match="can't start"):
        notify(["--cloud", str(config), "--state", str(tmp_path / "sent.db")])
    assert ended.wait(20)
