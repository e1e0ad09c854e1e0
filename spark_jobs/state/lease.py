"""Who writes ``readings``: one ``ingest``, or a ``replay`` in its place; never two.

What the table holds is in the writer's memory, so a second one would store readings twice. The lease is a
small file in the lake that its holder renews every ten seconds; it is free when it is 40 s old, or when its
process on this machine is gone. So an ``ingest`` that was restarted takes its predecessor's at once, in the
same process or in the next one on its machine; where that was killed on another machine, 40 s later. It is
against operators' mistakes, not malice: two could take it in the same moment, so the taker reads it again,
and whoever finds another's name there stops.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Final

from spark_jobs.errors import JobError
from spark_jobs.files import Files

RENEW_S: Final = 10.0
EXPIRES_S: Final = 40.0
_READS: Final = 5
_READ_AGAIN_S: Final = 0.05
"""A lease that is cut off for longer is what a crash left, and free."""


class LeaseTakenError(JobError):
    """Another process writes this lake's readings; the text has which."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, and when it was last renewed (wall time, seconds since the epoch)."""

    job: str
    token: str
    host: str
    pid: int
    renewed_s: float

    def __str__(self) -> str:
        return f"{self.job} (process {self.pid} on {self.host})"


class Lease:
    """The right to write a lake's ``readings``, for one job of this process. ``wall`` is wall time."""

    def __init__(self, files: Files, lake: str, job: str, wall: Callable[[], float] = time.time) -> None:
        self._files = files
        self._uri = f"{lake.rstrip('/')}/_writer.json"
        self._job = job
        self._token = uuid.uuid4().hex
        self._wall = wall
        self._renewed_s = float("-inf")

    def take(self) -> None:
        """Takes it. Raises LeaseTakenError while another job, or another process, holds it."""
        self._refuse_other()
        self._write()
        self._refuse_other()

    def renew(self) -> None:
        """Renews it, every ten seconds at most. Raises LeaseTakenError when another has taken it."""
        if self._wall() - self._renewed_s >= RENEW_S:
            self._refuse_other()
            self._write()

    def check(self) -> None:
        """Raises LeaseTakenError unless it is still ours."""
        holder = self.holder()
        if holder is None or holder.token != self._token:
            by = ", and is free now" if holder is None else f" to {holder}"
            raise LeaseTakenError(f"the lease of the readings was lost{by}")

    def give_back(self) -> None:
        """Ends it, where it is ours."""
        holder = self.holder()
        if holder is not None and holder.token == self._token:
            self._files.delete(self._uri)

    def holder(self) -> Holder | None:
        """Who holds it now; None where it is free."""
        holder = self._read()
        if holder is None or abs(self._wall() - holder.renewed_s) >= EXPIRES_S or _is_gone(holder):
            return None
        return holder

    def _read(self) -> Holder | None:
        for _ in range(_READS):
            text = self._files.read(self._uri)
            if text is None:
                return None
            try:
                return Holder(**json.loads(text))
            except (TypeError, ValueError):
                # Its holder is just writing it.
                time.sleep(_READ_AGAIN_S)
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Takes it, renews it in the background, and gives it back."""
        self.take()
        ended = threading.Event()

        def keep() -> None:
            # The holder finds out that it was taken by ``check``, before it writes.
            with suppress(LeaseTakenError):
                while not ended.wait(RENEW_S):
                    self.renew()

        keeper = threading.Thread(target=keep, name="lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join()
            self.give_back()

    def _refuse_other(self) -> None:
        holder = self.holder()
        if holder is not None and (holder.job, holder.host, holder.pid) != (self._job, *_this_process()):
            raise LeaseTakenError(
                f"{holder} writes this lake's readings: stop it first, or wait "
                f"{EXPIRES_S:g} s after it was killed"
            )

    def _write(self) -> None:
        self._renewed_s = self._wall()
        holder = Holder(self._job, self._token, *_this_process(), self._renewed_s)
        self._files.write(self._uri, json.dumps(asdict(holder)))


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def _is_gone(holder: Holder) -> bool:
    """Whether its process ran on this machine and doesn't any more."""
    if holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False
