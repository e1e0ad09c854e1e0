"""One demo from start to end: startup, main loop, shutdown, in that order. The main thread runs all of it."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

from cloud.errors import CloudError
from cloud.kafka.end_offsets import EndOffsets
from cloud.kafka.run_accounts import RunAccount
from cloud.kafka.topic_scan import read_books
from cloud.values import interval_s
from cloud.wire.reading_records import DEAD_LETTER_TOPIC
from gateway.commands.arguments import CommandError
from gateway.commands.demo.accounting import Lake, Observer, kafka_records, missing, sampled
from gateway.commands.demo.layout import Layout
from gateway.commands.demo.options import MAST, Options
from gateway.commands.demo.surroundings import CabinetThermometer, FleetHistory
from gateway.commands.demo.view import Picture, View
from gateway.config import Config
from gateway.config.kafka import wanted_topics
from gateway.system.atomic_file import write_atomic

log = logging.getLogger(__name__)

_TICK_S: Final = 0.1
_KAFKA_TIMEOUT_S: Final = 3.0


class Demo:
    """Everything on this machine, under supervision, until the end of sampling or a signal."""

    def __init__(self, options: Options, config: Config, layout: Layout, view: View) -> None:
        self._options = options
        self._layout = layout
        self._view = view
        self._gateway = config.gateway.id
        self._live_time = config.board.kind != "replay"
        self._stack = layout.stack(options, wanted_topics(config), self._seconds_left)
        self._offsets = EndOffsets(layout.kafka.bootstrap_servers)
        self._lake = Lake(layout.lake, self._gateway, interval_s(options.interval))
        self._observer = Observer(layout.listen, self._offsets, self._lake, self._accounts)
        self._device = CabinetThermometer(layout.mosquitto.host, layout.mosquitto.port)
        self._fleet = FleetHistory(layout.kafka.bootstrap_servers, layout.workdir / "fleet.log")
        pages = (
            f"{layout.pages}   # the dashboard"
            if options.has_pages
            else f"{sys.argv[0]} dashboard --lake {layout.lake}   # then http://127.0.0.1:8090/"
        )
        self._hints = (
            f"{sys.argv[0]} query --lake {layout.lake} "
            '"FROM statistics ORDER BY interval_start DESC LIMIT 9"',
            "Other tables: readings, mast, presence, alerts, sites, runs, quarantine",
            f"Addresses and logs: {layout.workdir / 'demo.json'}",
            pages,
        )
        self.interrupted = threading.Event()
        """Set by a signal."""
        self._started_s = time.monotonic()
        self._sampling_since_s: float | None = None
        self._was_up = False
        self._phase = "starting"

    def run(self) -> dict[str, Any]:
        """The final counts; ``missing`` names what wasn't where it belongs. Raises CommandError."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            self._stack.tick()
            self._observer.start()
            if self._options.config == MAST:
                self._device.start()
            return self._settle(self._main_loop())
        finally:
            self._shutdown()

    def _main_loop(self) -> list[str]:
        """Until all is where it belongs, the drain timeout or a signal; what is missing then."""
        drain_until_s: float | None = None
        while not self.interrupted.wait(_TICK_S):
            self._supervise()
            self._view.show(self._picture())
            status = self._observer.latest.status
            ended = status is not None and status.state == "ended"
            if not (self._options.unattended and self._was_up and ended):
                continue
            now_s = time.monotonic()
            if drain_until_s is None:
                self._enter("draining")
                self._device.stop()
                self._observer.exact = True
                drain_until_s = now_s + self._options.drain_timeout_s
            left = missing(self._observer.latest)
            if not left or now_s >= drain_until_s:
                return left
        return ["interrupted"]

    def _settle(self, missing: list[str]) -> dict[str, Any]:
        """Stop what moves data, then count."""
        self._enter("stopping")
        self._view.show(self._picture())
        self._observer.stop()
        self._stack.stop("gateway", "jobs")
        if self.interrupted.is_set() and not self._options.json:
            return {"missing": missing}
        return self._count(missing)

    def _shutdown(self) -> None:
        self._fleet.stop()
        self._device.stop()
        self._observer.stop()
        self._stack.stop()
        if self._was_up:
            self._enter("stopped")

    def _supervise(self) -> None:
        self._device.tick()
        changed = self._stack.tick()
        if self._stack.all_up and not self._was_up:
            self._was_up = True
            self._enter("sampling")
            if self._options.fleet:
                self._fleet.start()
        elif changed and self._was_up:
            self._describe()

    def _seconds_left(self) -> float | None:
        """What a gateway started now may sample; a restarted one goes on with the rest."""
        if self._options.seconds is None:
            return None
        now_s = time.monotonic()
        if self._sampling_since_s is None:
            self._sampling_since_s = now_s
        return max(self._options.seconds - (now_s - self._sampling_since_s), 0.001)

    def _accounts(self) -> list[RunAccount]:
        """What became of each run's readings. Raises CloudError where Kafka doesn't respond."""
        books = read_books(
            self._layout.kafka.bootstrap_servers,
            gateway=self._gateway,
            timeout_s=_KAFKA_TIMEOUT_S,
            runs_only=True,
        )
        return self._lake.accounts(books)

    def _count(self, missing: list[str]) -> dict[str, Any]:
        try:
            accounts, ends = self._accounts(), self._offsets.by_topic()
        except CloudError as error:
            if not self.interrupted.is_set():
                raise
            log.warning("event=demo.uncounted error=%s", error)
            accounts, ends = [], {}
        counts = self._lake.count()
        rows = counts.rows_per_channel
        channels = sorted({*rows, *(channel for run in accounts for channel in run.last_seq)})
        return {
            "gateway": self._gateway,
            "sampled": sampled(accounts),
            "kafka_records": kafka_records(ends),
            "table_rows": counts.rows,
            "duplicates": counts.rows - counts.distinct_rows,
            # Announced as dropped is lost all the same.
            "unaccounted": sum(run.unaccounted + run.dropped - run.never_sampled for run in accounts),
            "quarantined": counts.quarantined,
            "dead_letters": ends.get(DEAD_LETTER_TOPIC, 0),
            "outbox_records": sum(run.pending for run in accounts),
            "statistics_rows": counts.statistics_rows,
            "alerts": counts.alerts,
            **self._switched(),
            "seconds": round(time.monotonic() - self._started_s, 1),
            "missing": missing,
            "channels": {
                name: {
                    "sampled": sum(run.last_seq.get(name, 0) for run in accounts),
                    "table_rows": rows.get(name, 0),
                }
                for name in channels
            },
            "runs": [{"run": run.run, "state": run.state, "sampled": run.sampled or 0} for run in accounts],
            "restarts": {name: part.restarts for name, part in self._stack.parts.items()},
            "interval": self._options.interval,
            "lake": str(self._layout.lake),
        }

    def _switched(self) -> dict[str, Any]:
        """What the last run of the gateway made of commands, by outcome or reason, and its relays."""
        status = self._observer.latest.status
        if status is None:
            return {"commands": {}, "relays": {}}
        relays = status.relays.items()
        return {
            "commands": status.commands.results,
            "relays": {name: {"state": each.state, "switches": each.switches} for name, each in relays},
        }

    def _picture(self) -> Picture:
        return Picture(
            gateway=self._gateway,
            phase=self._phase,
            elapsed_s=time.monotonic() - self._started_s,
            states={name: part.state for name, part in self._stack.parts.items()},
            restarts={name: part.restarts for name, part in self._stack.parts.items()},
            seen=self._observer.latest,
            live_time=self._live_time,
            hints=self._hints,
        )

    def _enter(self, phase: str) -> None:
        self._phase = phase
        log.info("event=demo.%s", phase)
        if self._was_up:
            self._describe()

    def _describe(self) -> None:
        described = self._layout.describe(self._stack, self._gateway, self._phase)
        write_atomic(self._layout.workdir / "demo.json", json.dumps(described, indent=2) + "\n")

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.interrupted.is_set():
            # A second Ctrl-C: end without waiting.
            self._stack.kill()
        self.interrupted.set()


def open_workdir(workdir: Path, *, resume: bool) -> Path:
    """Make the directory. Raises CommandError where there is one, not empty and not to be resumed."""
    workdir = workdir.absolute()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        occupied = any(workdir.iterdir())
    except OSError as error:
        raise CommandError(f"{workdir}: {error.strerror}") from error
    if occupied and not resume:
        raise CommandError(f"{workdir} is not empty: name another --workdir, or go on in it with --resume")
    return workdir
