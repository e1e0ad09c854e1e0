"""The inbox wakes who sleeps there, whatever comes first."""

from __future__ import annotations

import os
import select
import threading
import time
from functools import partial

from gateway.forwarding.forwarder import Call, Inbox, Retained


def test_what_is_put_while_the_forwarder_sleeps_wakes_it() -> None:
    inbox = Inbox()
    threading.Timer(0.2, inbox.put, [Call(lambda: None)]).start()
    begun_s = time.monotonic()
    inbox.sleep(60.0, None, 0)
    assert time.monotonic() - begun_s < 30
    assert isinstance(inbox.take(), Call)
    assert inbox.take() is None


def test_what_was_put_before_keeps_it_awake() -> None:
    inbox = Inbox()
    inbox.put(Call(lambda: None))
    begun_s = time.monotonic()
    inbox.sleep(60.0, None, 0)
    assert time.monotonic() - begun_s < 30


def test_what_can_wait_wakes_nobody_and_is_there_in_its_order() -> None:
    inbox = Inbox()
    begun_s = time.monotonic()
    later = threading.Timer(0.1, partial(inbox.retain, {"run": b"1"}, soon=False))
    later.start()
    inbox.sleep(0.5, None, 0)
    assert time.monotonic() - begun_s >= 0.5
    later.join()
    inbox.retain({"status": b"2"})
    assert [inbox.take(), inbox.take(), inbox.take()] == [
        Retained({"run": b"1"}), Retained({"status": b"2"}), None,
    ]  # fmt: skip


def test_a_connection_with_bytes_ends_the_sleep_and_a_wake_does_so_once() -> None:
    inbox = Inbox()
    reading, writing = os.pipe()
    try:
        os.write(writing, b"x")
        begun_s = time.monotonic()
        inbox.sleep(60.0, reading, select.POLLIN)
        inbox.wake()
        inbox.sleep(60.0, None, 0)
        assert time.monotonic() - begun_s < 30
        inbox.sleep(0.2, None, 0)
        assert time.monotonic() - begun_s >= 0.2
    finally:
        os.close(reading)
        os.close(writing)
