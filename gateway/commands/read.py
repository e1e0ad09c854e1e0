"""``fieldgate read``: what each sensor says now, raw and value, with its quality in words.

Where the daemon runs it is asked: its sensors' pins and buses are taken. Else they are opened for a moment.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from buffer.reader import user_of
from cloud.wire.schema import FAIL, MISSING, Reading, format_time
from drivers.interface import DriverError
from drivers.registry import driver_type
from gateway.commands.status import QUALITY, NoStatus, fetch
from gateway.config import Config, ConfigError, SensorConfig, load
from gateway.sampling.one_shot import COUNT_S, OneShotRead
from gateway.sampling.sensors import open_fitted_board

_POLL_S: Final = 1.0
_NARROW: Final = 80
_AGAIN_S: Final = 0.2
NOT_YET: Final = 75
"""Exit code: nothing is wrong, but some sensor has no reading yet (EX_TEMPFAIL of sysexits.h: ask again)."""

WORDS: Final[Mapping[str, str]] = {
    "UNDER_RANGE": "below what the sensor or the site can have",
    "OVER_RANGE": "above what the sensor or the site can have",
    "STUCK_VALUE": "the value hasn't changed for too long",
    "STEP_TOO_HIGH": "changed faster than it can",
    "SPIKE": "far off the readings before it",
    "NOISY": "the signal is disturbed",
    "READ_ERROR": "the sensor gave no answer",
    "CHECKSUM": "the sensor's answer was damaged",
    "CALIBRATION_EXPIRED": "the calibration is out of date",
    "WARMING_UP": "the sensor is warming up",
    "CLOCK_UNSYNCED": "the clock isn't synchronised",
    "PAIR_DISAGREES": "its twin says something else",
}
"""The reasons of the wire contract, for people."""


class CannotRead(Exception):
    """Nothing can be read; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """One channel's reading. ``trouble`` is why there is no value, in the driver's words."""

    sensor: str
    channel: str
    time: str | None
    value: float | None
    unit: str
    raw: float | None
    raw_unit: str | None
    quality: int
    reasons: tuple[str, ...]
    seq: int
    trouble: str | None = None
    due_s: float | None = None
    """Of a sensor that has no reading yet: within how many seconds it will have one, at the latest."""

    @property
    def failed(self) -> bool:
        """True where there is no value that is due, or one that can't be right."""
        return self.quality in (MISSING, FAIL) and not self.pending

    @property
    def pending(self) -> bool:
        """True where the first reading isn't due yet."""
        return self.due_s is not None

    @property
    def words(self) -> str:
        """Why it is no better than it is."""
        told = [WORDS.get(reason, reason) for reason in self.reasons]
        return "; ".join(filter(None, (*told, self.trouble)))


def run(
    path: Path,
    names: Sequence[str],
    *,
    json_output: bool,
    follow: bool,
    timeout_s: float,
    seconds: float | None,
) -> int:
    """Print it: 0, or 1 where a sensor has no value, a failed one, or nothing can be read.

    NOT_YET where nothing has failed and the running daemon has no reading of a sensor yet, after
    ``timeout_s`` or because it isn't due within that.
    """
    # What goes wrong stands in the table.
    logging.getLogger("gateway").setLevel(logging.CRITICAL)
    logging.getLogger("drivers").setLevel(logging.CRITICAL)
    try:
        config = load(path, {})
        sensors = chosen_sensors(config, names)
        asked = daemon_status(config)
        if follow:
            source = _follow_daemon(config, sensors) if asked else None
            return _follow(config, sensors, source, json_output=json_output, seconds=seconds)
        if asked:
            rows = _asked_until_known(config, sensors, asked, timeout_s)
        else:
            rows = _look(config, sensors, timeout_s, quiet=json_output)
    except ConfigError as error:
        sys.stderr.write("".join(f"{problem}\n" for problem in error.problems))
        return 1
    except (CannotRead, DriverError) as error:
        sys.stderr.write(f"fieldgate: {error}\n")
        return 1
    failed, pending = any(row.failed for row in rows), any(row.pending for row in rows)
    if json_output:
        answer = {
            "ok": not failed and not pending,
            "source": "daemon" if asked else "board",
            "readings": [*map(_json, rows)],
        }
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    else:
        print_rows(rows, Console(highlight=False), datetime.now(UTC) if asked else None)
    return 1 if failed else NOT_YET if pending else 0


def chosen_sensors(config: Config, names: Sequence[str]) -> list[SensorConfig]:
    """The sensors of these names, all where there are none. Raises CannotRead."""
    known = {sensor.name: sensor for sensor in config.sensors}
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" (did you mean {near[0]}?)" if near else f"; there are {', '.join(known)}"
            raise CannotRead(f"no sensor {name!r}{hint}")
    if not known:
        raise CannotRead("the config has no sensors")
    return [known[name] for name in dict.fromkeys(names)] or list(config.sensors)


def daemon_status(config: Config) -> dict[str, Any] | None:
    """The running daemon's status, None where none runs. Raises CannotRead where it can't be asked."""
    trouble = "its status page is off: set [status] listen"
    if config.status.enabled:
        try:
            status = fetch(config.status.listen)
        except NoStatus as error:
            trouble = str(error)
        else:
            if status.get("gateway") == config.gateway.id:
                return status
            trouble = f"{config.status.listen} answers for gateway {status.get('gateway')!r}"
    lock = Path(f"{config.outbox.path}.lock")
    try:
        lock.stat()
    except PermissionError as error:
        raise CannotRead(
            f"whether a daemon has the sensors can't be seen ({lock}: {error.strerror}): use sudo"
        ) from error
    except OSError:
        return None
    user = user_of(config.outbox.path)
    if user is None:
        return None
    raise CannotRead(
        f"the daemon (process {user}) has the sensors and can't be asked: {trouble}; "
        "or stop it first (sudo systemctl stop fieldgate)"
    )


def _asked_until_known(
    config: Config, sensors: Sequence[SensorConfig], status: Mapping[str, Any], timeout_s: float
) -> list[Row]:
    """The daemon's readings; first ones that should come within the time are waited for, as a board's are."""
    deadline_s = time.monotonic() + timeout_s
    soon = {sensor.name for sensor in sensors if 2 * sensor.interval_s <= timeout_s}
    while True:
        rows = rows_of_status(status, sensors)
        if not any(row.pending and row.sensor in soon for row in rows) or time.monotonic() >= deadline_s:
            return rows
        time.sleep(_AGAIN_S)
        again = daemon_status(config)
        if again is None:
            return rows
        status = again


def rows_of_status(status: Mapping[str, Any], sensors: Sequence[SensorConfig]) -> list[Row]:
    """The daemon's last readings; a sensor that has none yet has one row that says when it is due."""
    channels, troubles = status.get("channels") or {}, status.get("troubles") or {}
    rows = []
    for sensor in sensors:
        own = [name for name in channels if name.rsplit(".", 1)[0] == sensor.name]
        trouble = troubles.get(sensor.name)
        if not own:
            rows.append(_no_reading_yet(sensor, status, trouble))
        rows += [_row(sensor.name, name, channels[name], trouble) for name in own]
    return rows


def _no_reading_yet(sensor: SensorConfig, status: Mapping[str, Any], trouble: str | None) -> Row:
    """What to say of a sensor of which the daemon has no reading."""
    known_s = _known_for_s(status)
    # On the grid a first period may begin a whole interval after the start, and what is counted ends another
    # one later; the read takes its time, too.
    due_s = max(2 * sensor.interval_s + driver_type(sensor.driver).longest_read_s - known_s, 0.0)
    if due_s > 0:
        words = f"no reading yet, due within {due_s:.0f} s" if due_s >= 1 else "no reading yet, due now"
        told = "; ".join(filter(None, (words, trouble)))
        return _without_reading(sensor.name, told, round(due_s, 1))
    words = "no reading, though it is due: reload the daemon if the sensor is new in the config"
    return _without_reading(sensor.name, "; ".join(filter(None, (trouble, words))), None)


def _known_for_s(status: Mapping[str, Any]) -> float:
    """How long the running daemon has had its config, by its clock and ours: they are one machine's."""
    uptime_s = float(status.get("uptime_s") or 0.0)
    loaded_at = (status.get("config") or {}).get("loaded_at")
    if not isinstance(loaded_at, str):
        return uptime_s
    loaded_s = (datetime.now(UTC) - datetime.fromisoformat(loaded_at)).total_seconds()
    # A clock that was set since makes nonsense of the difference.
    return min(uptime_s, loaded_s) if loaded_s >= 0 else uptime_s


def _without_reading(sensor: str, trouble: str | None, due_s: float | None) -> Row:
    return Row(sensor, sensor, None, None, "", None, None, MISSING, (), 0, trouble, due_s)


def _row(sensor: str, channel: str, last: Mapping[str, Any], trouble: str | None) -> Row:
    return Row(
        sensor, channel, last.get("time"), last.get("value"), str(last.get("unit") or ""), last.get("raw"),
        last.get("raw_unit"), int(last.get("quality", MISSING)), tuple(last.get("reasons") or ()),
        int(last.get("seq", 0)), trouble if last.get("value") is None else None,
    )  # fmt: skip


def row_of_reading(reading: Reading, sensor: str, trouble: str | None) -> Row:
    """A reading, with the driver's words where it has no value."""
    return Row(
        sensor, reading.channel, format_time(reading.time_us), reading.value, reading.unit or "", reading.raw,
        reading.raw_unit, reading.quality, reading.reasons, reading.seq,
        trouble if reading.value is None else None,
    )  # fmt: skip


def _look(config: Config, sensors: Sequence[SensorConfig], timeout_s: float, *, quiet: bool) -> list[Row]:
    board = open_fitted_board(config)
    try:
        look = OneShotRead(config.gateway.id, sensors, board)
        if look.counts and not quiet and sys.stderr.isatty():
            sys.stderr.write(f"counting {', '.join(look.counts)} for {COUNT_S:g} s …\n")
        rows = []
        for seen in look.run(timeout_s):
            rows += [row_of_reading(reading, seen.sensor, seen.trouble) for reading in seen.readings]
            if not seen.readings:
                rows.append(_without_reading(seen.sensor, seen.trouble, None))
        return rows
    finally:
        board.close()


def _follow_daemon(config: Config, sensors: Sequence[SensorConfig]) -> Callable[[], Iterator[Row]]:
    """Each new reading of the daemon, once."""
    shown: dict[str, int] = {}

    def new() -> Iterator[Row]:
        status = daemon_status(config)
        if status is None:
            raise CannotRead("the daemon has ended")
        for row in rows_of_status(status, sensors):
            if not row.pending and shown.get(row.channel) != row.seq:
                shown[row.channel] = row.seq
                yield row

    return new


def _follow(
    config: Config,
    sensors: Sequence[SensorConfig],
    source: Callable[[], Iterator[Row]] | None,
    *,
    json_output: bool,
    seconds: float | None,
) -> int:
    """A line for each reading until Ctrl-C or the time is over: spin a cup by hand and see its Hz."""
    console = Console(highlight=False, soft_wrap=True)

    def show(row: Row) -> None:
        if json_output:
            sys.stdout.write(json.dumps(_json(row)) + "\n")
            sys.stdout.flush()
        else:
            console.print(_line(row))

    end = float("inf") if seconds is None else time.monotonic() + seconds
    try:
        if source is not None:
            while time.monotonic() < end:
                for row in source():
                    show(row)
                time.sleep(_POLL_S)
            return 0
        board = open_fitted_board(config)
        try:
            look = OneShotRead(
                config.gateway.id, sensors, board, _POLL_S,
                lambda reading, sensor: show(row_of_reading(reading, sensor, None)),
            )  # fmt: skip
            look.follow(None if seconds is None else seconds)
        finally:
            board.close()
    except KeyboardInterrupt:
        pass
    return 0


def _json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "words": row.words}


def number_text(value: float | None, unit: str | None) -> str:
    """A figure for people, small ones with three digits."""
    if value is None:
        return "–"
    digits = f"{value:.3f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
    return f"{digits} {unit or ''}".rstrip()


def _quality(row: Row) -> Text:
    word, colour = ("–", "white") if row.pending else QUALITY.get(row.quality, ("?", "white"))
    return Text(word, style=colour)


def _line(row: Row) -> Text:
    clock = row.time[11:19] if row.time else "–"
    line = Text(
        f"{clock} {row.channel}  {number_text(row.raw, row.raw_unit)}  {number_text(row.value, row.unit)}  "
    )
    line.append_text(_quality(row))
    return line.append(f"  {row.words}" if row.words else "")


def _age(row: Row, now: datetime | None) -> str:
    if now is None or row.time is None:
        return ""
    return f"{(now - datetime.fromisoformat(row.time)).total_seconds():.0f} s"


def print_rows(rows: Sequence[Row], console: Console, now: datetime | None) -> None:
    """A table, or on a narrow terminal a few lines for each channel; with ages where readings have one.

    A driver's words are text as they stand: ``[board]`` in them is no markup.
    """
    if console.width < _NARROW:
        for row in rows:
            console.print(Text(f"{row.channel}  ", style="bold").append_text(_quality(row)))
            age = f"  {_age(row, now)} ago" if now is not None else ""
            console.print(
                f"  {number_text(row.value, row.unit)}  (raw {number_text(row.raw, row.raw_unit)}){age}"
            )
            if row.words:
                console.print(Text(f"  {row.words}"))
        return
    table = Table(box=None, pad_edge=False)
    for name, justify in (("channel", "left"), ("raw", "right"), ("value", "right"), ("quality", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    if now is not None:
        table.add_column("age", justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for row in rows:
        cells: list[str | Text] = [
            row.channel,
            number_text(row.raw, row.raw_unit),
            number_text(row.value, row.unit),
            _quality(row),
        ]
        table.add_row(*cells, *([] if now is None else [_age(row, now)]), Text(row.words))
    console.print(table)
