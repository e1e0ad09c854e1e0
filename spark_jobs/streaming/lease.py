"""Who writes what a query of ``ingest`` writes: one process, an ``ingest`` or a ``replay`` in its place.

What the tables hold is in the writer's memory, so a second writer would store readings twice. Two things
prevent that, and neither asks on which machine or under which process number a writer runs:

*The lease* keeps a second writer waiting. It is the newest of the numbered files in ``_lease/NAME`` of the
lake, and its holder adds one every RENEW_S. A number is written only where there is none, by the log store
Delta makes its own commits with: of two that take the lease at once one is refused. A holder that adds no
file for EXPIRES_S of a taker's watching is gone; for _WATCHED_S where the file's time says that it is so old.

*The fence* holds where that isn't enough: a holder that was suspended, or cut off, takes itself for the
holder when it wakes. Each taking has a higher ``epoch``, and a taker first commits it to each table it will
write (``fence``), as the version of the application NAME. Delta refuses commits of older versions, and those
under way. So whoever has lost the lease can write nothing more, and learns so from ``sinks.delta``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.platform.errors import JobError
from spark_jobs.platform.files import Files
from spark_jobs.platform.schemas import Table
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, fence

log = logging.getLogger("fieldgate.jobs.lease")

RENEW_S: Final = 5.0
EXPIRES_S: Final = 20.0
_WATCHED_S: Final = 8.0
"""A holder that lives renews within this time, whatever its clock shows."""
_LOOK_EVERY_S: Final = 0.5
_KEPT: Final = 3
_WRITES: Final = 1 << 31
"""Versions in one epoch: a write takes one. Epochs are seconds since 1970 at least, so 2 ** 62 is in 2038."""
_TOKEN: Final = uuid.uuid4().hex
"""Names this process: what it holds it may take again."""


class LeaseTakenError(JobError):
    """Another process writes these tables; the text has which."""


@dataclass(frozen=True)
class Holder:
    """A file of the lease: who holds it, since which epoch, and when that was written (Unix time).

    ``host`` and ``pid`` are for people to read. One that was given back has no token.
    """

    job: str
    token: str
    host: str
    pid: int
    epoch: int
    renewed_s: float

    def __str__(self) -> str:
        return f"{self.job} (process {self.pid} on {self.host})"


class Lease:
    """The right to write some tables of a lake, for one run of a job. ``wall`` is Unix time.

    While it is held, a thread of its own renews it.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        name: str,
        job: str,
        wall: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._app = f"fieldgate-{name}"
        self._name = name
        self._spark, self._settings = spark, settings
        self._files = Files(spark)
        self._folder = f"{settings.lake.rstrip('/')}/_lease/{name}"
        self._me = Holder(job, _TOKEN, socket.gethostname(), os.getpid(), 0, 0.0)
        self._wall, self._pause = wall, pause
        self._lost: LeaseTakenError | None = None
        self._writes = count(1)
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="lease", daemon=True)

    def take(self, tables: Iterable[Table] = ()) -> None:
        """Takes it, and fences these tables. Raises LeaseTakenError while another process holds it."""
        began_s = self._wall()
        number, holder = self._last()
        first = number
        while holder is not None and holder.token and not self._is_ours(holder):
            now_s = self._wall()
            is_old = abs(now_s - holder.renewed_s) >= EXPIRES_S
            if now_s - began_s >= (_WATCHED_S if is_old else EXPIRES_S):
                log.warning("event=lease.expired %s no longer renews its lease, and is replaced", holder)
                break
            if number != first:
                raise self._taken_by(holder)
            self._pause(_LOOK_EVERY_S)
            number, holder = self._last()
        epoch = max(int(self._wall()), holder.epoch + 1 if holder else 0)
        self._me = replace(self._me, epoch=epoch)
        self._files.make_folder(self._folder)
        self._add(number, self._me)
        self._keeper.start()
        for table in tables:
            fence(self._spark, ensure_table(self._spark, self._settings, table), self._app, epoch * _WRITES)

    def next_write(self) -> tuple[str, int]:
        """The application and its version with which the next batch is to be written."""
        self.check()
        return self._app, self._me.epoch * _WRITES + next(self._writes)

    def check(self) -> None:
        """Raises LeaseTakenError where the last renewal found that another process has taken it."""
        if self._lost is not None:
            raise self._lost

    def renew(self) -> None:
        """Adds a file. Raises LeaseTakenError when another process has taken it."""
        number, holder = self._last()
        if holder is None or not self._is_mine(holder):
            raise self._taken_by(holder)
        self._add(number, self._me)

    def give_back(self) -> None:
        """Ends it, where it is ours: the next one needn't wait."""
        self._ended.set()
        if self._keeper.is_alive():
            self._keeper.join(RENEW_S)
        try:
            number, holder = self._last()
            if holder is not None and self._is_mine(holder):
                self._add(number, replace(self._me, token=""))
        except (LeaseTakenError, Py4JError, OSError) as error:
            log.warning("event=lease.not_given_back %s", str(error).strip().partition("\n")[0][:300])

    @contextmanager
    def held(self, tables: Iterable[Table] = ()) -> Iterator[None]:
        """Takes it, and gives it back."""
        self.take(tables)
        try:
            yield
        finally:
            self.give_back()

    def _keep(self) -> None:
        while not self._ended.wait(RENEW_S):
            try:
                self.renew()
            except LeaseTakenError as taken:
                self._lost = taken
                return
            except (Py4JError, OSError) as error:
                # The store is away: no other process can take the lease there either.
                log.warning("event=lease.not_renewed %s", str(error).strip().partition("\n")[0][:300])

    def _is_ours(self, holder: Holder) -> bool:
        """Whether it is an earlier run of the job in this process."""
        return (holder.token, holder.job) == (self._me.token, self._me.job)

    def _is_mine(self, holder: Holder) -> bool:
        return (holder.token, holder.epoch) == (self._me.token, self._me.epoch)

    def _last(self) -> tuple[int, Holder | None]:
        """Returns the newest file's number, 0 without one, and its holder; None where a crash damaged it."""
        number = max(self._files.numbers(self._folder), default=0)
        try:
            return number, Holder(**json.loads(self._files.read_bytes(self._file(number)) or b""))
        except (TypeError, ValueError):
            return number, None

    def _add(self, number: int, holder: Holder) -> None:
        """Writes the file after this one, and removes an old one."""
        text = json.dumps(asdict(replace(holder, renewed_s=self._wall())))
        if not self._files.create_new(self._file(number + 1), text):
            raise self._taken_by(self._last()[1])
        self._files.delete(self._file(number + 1 - _KEPT))

    def _file(self, number: int) -> str:
        return f"{self._folder}/{number:020d}"

    def _taken_by(self, holder: Holder | None) -> LeaseTakenError:
        return LeaseTakenError(
            f"{holder or 'another process'} writes the {self._name} of {self._settings.lake}: stop it first; "
            f"one that was killed is replaced after {EXPIRES_S:g} s"
        )
