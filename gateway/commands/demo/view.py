"""What the demo shows: a live picture on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.commands.demo.accounting import Observation, kafka_records
from gateway.commands.demo.layout import State
from gateway.commands.reading_rows import channel_table
from gateway.status.findings import counts_text

_LINE_EVERY_S: Final = 5.0
_LINES_AROUND_CHANNELS: Final = 11
_STYLE: Final = {State.WAITING: "dim", State.STARTING: "yellow", State.UP: "green", State.DOWN: "bold red"}


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment of a demo; ``live_time`` is False where event time is replayed."""

    gateway: str
    phase: str
    elapsed_s: float
    states: Mapping[str, State]
    seen: Observation
    live_time: bool
    hints: tuple[str, ...]


class LiveView:
    """Redraws the whole picture on a terminal, twice a second."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, refresh_per_second=2, vertical_overflow="crop")
        self.screen: AbstractContextManager[object] = self._live

    def show(self, picture: Picture) -> None:
        """What is drawn next."""
        self._live.update(render(picture, self._console.height, datetime.now(UTC)))


class LineView:
    """Writes a line when a component or the phase changes, and every few seconds a summary."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._states: dict[str, str] = {}
        self._phase = ""
        self._summary_s = 0.0
        self.screen: AbstractContextManager[object] = nullcontext()

    def show(self, picture: Picture) -> None:
        """Write what is new."""
        if picture.phase != self._phase:
            self._phase = picture.phase
            self._write(picture, picture.phase)
            if picture.phase == "sampling":
                self._stream.writelines(f"{hint}\n" for hint in picture.hints)
        for name, state in picture.states.items():
            if self._states.get(name, State.WAITING) != state:
                self._write(picture, f"{name} is {state}")
            self._states[name] = state
        if picture.elapsed_s - self._summary_s >= _LINE_EVERY_S:
            self._summary_s = picture.elapsed_s
            self._write(picture, f"{_flow(picture)}; {_stored(picture.seen)}; {_switched(picture.seen)}")

    def _write(self, picture: Picture, text: str) -> None:
        self._stream.write(f"{_clock(picture.elapsed_s)} {text}\n")
        self._stream.flush()


View = LiveView | LineView
"""Where pictures go; ``screen`` is to be entered while they do."""


def render(picture: Picture, height: int, now: datetime) -> RenderableType:
    """The picture for a terminal of this height (80 columns suffice)."""
    status = picture.seen.status
    room = max(height - _LINES_AROUND_CHANNELS - len(picture.hints), 3)
    channels = 0 if status is None else len(status.channels) + len(status.forwarded_channels)
    body: list[RenderableType] = [_head(picture), _components(picture)]
    body += [Text(_flow(picture)), Text(_stored(picture.seen)), Text(_switched(picture.seen)), Text()]
    if status is not None and channels:
        body.append(channel_table(status, now if picture.live_time else None, room))
    else:
        body.append(Text("No readings yet.", style="dim"))
    if channels > room:
        body.append(Text(f"… and {channels - room} more", style="dim"))
    body += [Text(), *(Text(hint, style="dim") for hint in picture.hints)]
    return Group(*body)


def _head(picture: Picture) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    title = Text.assemble(("fieldgate demo ", "bold"), picture.gateway, ("  " + picture.phase, "cyan"))
    line.add_row(title, f"{_clock(picture.elapsed_s)}  Ctrl-C stops")
    return line


def _components(picture: Picture) -> Text:
    text = Text()
    for name, state in picture.states.items():
        text.append(f"{name} ")
        text.append(str(state), style=_STYLE[state])
        text.append("   ")
    return text


def _flow(picture: Picture) -> str:
    status = picture.seen.status
    if status is None:
        return "The gateway does not answer." if picture.states["gateway"] is State.UP else "No gateway yet."
    return (
        f"{status.sampled / max(status.uptime_s, 1):.1f} readings/s, sampled {status.sampled}, "
        f"in flight {status.in_flight}, uplink {status.uplink}, outbox {status.outbox_records}"
    )


def _stored(seen: Observation) -> str:
    records = "–" if seen.ends is None else str(kafka_records(seen.ends))
    counts = seen.counts
    return (
        f"Kafka {records} records; tables: readings {counts.rows}, "
        f"statistics {counts.statistics_rows}, alerts {counts.alerts}, quarantine {counts.quarantined}"
    )


def _switched(seen: Observation) -> str:
    """The relays as they are, and what became of commands."""
    status = seen.status
    relays = [] if status is None else [f"{name} {each.state}" for name, each in status.relays.items()]
    commands = ("" if status is None else counts_text(status.commands.results)) or "none"
    return f"Relays: {', '.join(relays) or 'none'}; commands: {commands}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02}:{rest:02}"
