"""One demo from start to end: startup, main loop, shutdown, in that order. The main thread runs all of it."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from cloud.kafka.end_offsets import EndOffsets
from cloud.local.process import wait_for
from cloud.wire.reading_records import DEAD_LETTER_TOPIC
from gateway.commands.demo.accounting import Lake, in_outbox, sampled
from gateway.commands.demo.device import CabinetThermometer
from gateway.commands.demo.errors import DemoError
from gateway.commands.demo.layout import Layout, program
from gateway.commands.demo.observer import Completeness, Observer, kafka_records
from gateway.commands.demo.options import MAST, Options
from gateway.commands.demo.run_records import RunRecords
from gateway.commands.demo.view import Picture, View
from gateway.config import Config
from gateway.system.atomic_file import write_atomic

log = logging.getLogger(__name__)

_TICK_S: Final = 0.1
_LAST_RECORD_S: Final = 3.0


class Demo:
    """Everything on this machine, under supervision, until the end of sampling or a signal."""

    def __init__(self, options: Options, config: Config, layout: Layout, view: View) -> None:
        self._options = options
        self._layout = layout
        self._view = view
        self._gateway = config.gateway.id
        self._live_time = config.board.kind != "replay"
        self._stack = layout.stack(options, self._seconds_left)
        topic = f"{config.mqtt.topic_root}/{self._gateway}/run"
        self._records = RunRecords(
            layout.mosquitto.host, layout.mosquitto.port, topic, layout.workdir / "runs.json"
        )
        self._offsets = EndOffsets(layout.kafka.bootstrap_servers)
        self._lake = Lake(layout.lake, self._gateway, options.interval_s)
        self._observer = Observer(layout.listen, self._offsets, self._lake, self._records)
        self._device = (
            CabinetThermometer(layout.mosquitto.host, layout.mosquitto.port)
            if options.config == MAST
            else None
        )
        self._hints = (
            f'{program()} query --lake {layout.lake} "FROM statistics ORDER BY interval_start DESC LIMIT 9"',
            "Other tables: readings, mast, presence, alerts, runs, quarantine",
            f"Addresses and logs: {layout.workdir / 'demo.json'}",
        )
        self._signals = 0
        self._stopped = threading.Event()
        self._started_s = time.monotonic()
        self._sampling_since_s: float | None = None
        self._was_up = False
        self._phase = "starting"

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended it."""
        return self._stopped.is_set()

    def run(self) -> dict[str, Any]:
        """The final counts; ``missing`` says what wasn't where it belongs. Raises DemoError."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            self._startup()
            missing = self._main_loop()
            return self._settle(missing)
        finally:
            self._shutdown()

    def _startup(self) -> None:
        self._stack.tick()
        self._records.start()
        self._observer.start()
        if self._device is not None:
            self._device.start()

    def _main_loop(self) -> list[str]:
        """Until all is where it belongs, the drain timeout or a signal; what is missing then."""
        completeness = Completeness()
        drain_until_s: float | None = None
        while not self._stopped.wait(_TICK_S):
            self._supervise()
            self._view.show(self._picture())
            if not (self._options.unattended and self._was_up and self._ended()):
                continue
            now_s = time.monotonic()
            if drain_until_s is None:
                self._enter("draining")
                self._stop_device()
                self._observer.count_exactly()
                drain_until_s = now_s + self._options.drain_timeout_s
            missing = completeness.missing(self._observer.latest)
            if not missing or now_s >= drain_until_s:
                return missing
        return ["interrupted"]

    def _settle(self, missing: list[str]) -> dict[str, Any]:
        """Stop what moves data, then count."""
        self._enter("stopping")
        self._view.show(self._picture())
        self._stop_device()
        self._observer.stop()
        self._stack.stop("gateway")
        wait_for(self._said_goodbye, _LAST_RECORD_S)
        self._stack.stop("jobs")
        if self.interrupted and not self._options.json:
            return {"missing": missing}
        return self._count(missing)

    def _stop_device(self) -> None:
        if self._device is not None:
            self._device.stop()

    def _shutdown(self) -> None:
        self._stop_device()
        self._observer.stop()
        self._stack.stop()
        self._records.stop()
        if self._was_up:
            self._enter("stopped")

    def _supervise(self) -> None:
        changed = self._stack.tick()
        if self._stack.all_up and not self._was_up:
            self._was_up = True
            self._enter("sampling")
        elif changed and self._was_up:
            self._describe()

    def _ended(self) -> bool:
        status = self._observer.latest.status
        return status is not None and status.get("state") == "ended"

    def _said_goodbye(self) -> bool:
        current = self._records.current
        return current is None or current.state == "stopped"

    def _seconds_left(self) -> float | None:
        """What a gateway started now may sample; a restarted one goes on with the rest."""
        if self._options.seconds is None:
            return None
        now_s = time.monotonic()
        if self._sampling_since_s is None:
            self._sampling_since_s = now_s
        return max(self._options.seconds - (now_s - self._sampling_since_s), 0.001)

    def _count(self, missing: list[str]) -> dict[str, Any]:
        runs = self._lake.furthest(self._records.all().values())
        counts = self._lake.count(runs)
        ends: Mapping[str, int] = self._offsets.by_topic()
        outbox = in_outbox(self._layout.outbox, self._gateway)
        unaccounted = self._lake.missing(runs, outbox | self._lake.quarantined(runs))
        rows = self._lake.rows_per_channel()
        channels = sorted({*rows, *(channel for run in runs for channel in run.last_seq)})
        return {
            "gateway": self._gateway,
            "sampled": sampled(runs),
            "kafka_records": kafka_records(ends),
            "table_rows": counts.rows,
            "duplicates": counts.rows - counts.distinct,
            "unaccounted": unaccounted,
            "quarantined": counts.quarantined,
            "dead_letters": ends.get(DEAD_LETTER_TOPIC, 0),
            "outbox_records": len(outbox),
            "statistics_rows": counts.statistics_rows,
            "seconds": round(time.monotonic() - self._started_s, 1),
            "missing": missing,
            "channels": {
                name: {
                    "sampled": sum(run.last_seq.get(name, 0) for run in runs),
                    "table_rows": rows.get(name, 0),
                }
                for name in channels
            },
            "runs": [{"run": run.run, "state": run.state, "sampled": sampled((run,))} for run in runs],
            "restarts": {name: part.restarts for name, part in self._stack.parts.items()},
            "interval": self._options.interval,
            "lake": str(self._layout.lake),
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
        content = json.dumps({**described, "pid": os.getpid()}, indent=2) + "\n"
        write_atomic(self._layout.workdir / "demo.json", content)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._stopped.set()
        if self._signals > 1:
            # Whoever asks twice doesn't want to wait.
            self._stack.kill()


def open_workdir(workdir: Path, *, resume: bool) -> Path:
    """Make the directory where there is none. Raises DemoError where it isn't empty and not to be resumed."""
    workdir = workdir.absolute()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        occupied = any(workdir.iterdir())
    except OSError as error:
        raise DemoError(f"{workdir}: {error.strerror}") from error
    if occupied and not resume:
        raise DemoError(f"{workdir} is not empty: name another --workdir, or go on in it with --resume")
    return workdir
