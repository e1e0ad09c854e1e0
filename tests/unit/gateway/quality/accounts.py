"""What was injected into a simulated day and what of it was flagged.

``python -m tests.unit.gateway.quality.accounts`` runs the days of docs/quality.md (minutes each)
and prints their tables.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drivers.emulation.environment import Fault, Faults
from tests.support.quality_days import Taken, mast_config, sample

SECOND_NS = 1_000_000_000
HOUR_S = 3600
DAY_UNITS = 24

Series = Mapping[str, Sequence[Taken]]


@dataclass(frozen=True)
class Injection:
    """One row of the table: a fault, its channels and their twin. Times in units (hours of a day)."""

    name: str
    text: str
    sensor: str
    channels: tuple[str, ...]
    begin: float
    end: float
    twin: str | None = None
    every: float | None = None
    errs: bool = False

    def fault(self, unit_s: int) -> str:
        """The fault as a config has it."""
        spans = f"after_s = {self.begin * unit_s:g}, for_s = {(self.end - self.begin) * unit_s:g}"
        again = f", every_s = {self.every * unit_s:g}" if self.every is not None else ""
        return f'sensor = "{self.sensor}", {self.text.replace("UNIT", str(unit_s))}, {spans}{again}'

    def covers(self, unit_s: int) -> Callable[[float], bool]:
        """Whether a reading that begins at an instant (s) has the fault in it."""
        begin_s, end_s = self.begin * unit_s, self.end * unit_s
        if self.errs:
            faults = Faults([Fault(self.sensor, "bit-errors")])
            return lambda at_s: faults.errs(self.sensor, round(at_s) * SECOND_NS)
        if self.every is not None:
            every_s = self.every * unit_s
            return lambda at_s: begin_s <= at_s < end_s and (at_s - begin_s) % every_s < 1
        return lambda at_s: begin_s <= at_s < end_s


def cup(place: str) -> str:
    return f"cup-{place}.wind_speed"


INJECTIONS = (
    Injection(
        "stuck cup", 'kind = "stuck"', "cup-50m-a", (cup("50m-a"),), 2, 5, cup("50m-b")
    ),
    Injection(
        "icing: slower for 2 h, then standing for 4 h",
        'kind = "icing", amount = 2e0', "cup-30m-a", (cup("30m-a"),), 8, 14, cup("30m-b"),
    ),
    Injection(
        "drift of one cup by 10 %", 'kind = "drift", amount = 0.9', "cup-20m-a", (cup("20m-a"),), 6, 24,
        cup("20m-b"),
    ),
    Injection(
        "spike of a cup: 15 pulses (11 m/s) more", 'kind = "spike", amount = 15', "cup-50m-b",
        (cup("50m-b"),), 6, 12, cup("50m-a"), 1,
    ),
    Injection(
        "spike of a cup: 60 pulses (46 m/s) more", 'kind = "spike", amount = 60', "cup-50m-b",
        (cup("50m-b"),), 12, 18, cup("50m-a"), 1,
    ),
    Injection(
        "open ADC input, barometer", 'kind = "open-input"', "baro", ("baro.pressure",), 16, 17
    ),
    Injection(
        "open ADC input, pyranometer", 'kind = "open-input"', "sun", ("sun.irradiance",), 8, 9
    ),
    Injection(
        "spike of the barometer: 0.02 V (0.4 kPa) more", 'kind = "spike", amount = 0.02', "baro",
        ("baro.pressure",), 6, 12, None, 1,
    ),
    Injection(
        "spike of the pyranometer: 0.01 V (1,000 W/m²) more", 'kind = "spike", amount = 0.01', "sun",
        ("sun.irradiance",), 2, 8, None, 1,
    ),
    Injection(
        "DHT11: bit errors in 5 % of the reads", 'kind = "bit-errors"', "dht",
        ("dht.temperature", "dht.humidity"), 0, 24, None, None, True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Account:
    """What became of an injection.

    ``after_s`` is from its begin to the first flag, ``throughout_s`` until every reading is flagged; None is
    never.
    """

    injected: int
    flagged: int
    reasons: frozenset[str]
    after_s: float | None
    throughout_s: float | None
    on_twin: int
    trailing: int


@dataclass(frozen=True)
class Result:
    """A day's accounts by injection, and by channel what was flagged that nothing was injected into."""

    accounts: Mapping[str, Account]
    false: Mapping[str, int]
    clean: Mapping[str, int]

    @property
    def false_share(self) -> float:
        return sum(self.false.values()) / max(sum(self.clean.values()), 1)


def faulty(directory: Path, start: str, seed: int, unit_s: int, quality: str = "") -> Result:
    """24 units with every fault injected."""
    faults = [injection.fault(unit_s).replace("2e0", str(2 * unit_s)) for injection in INJECTIONS]
    return account(sample(mast_config(directory, start, seed, faults, quality), DAY_UNITS * unit_s), unit_s)


def account(taken: Series, unit_s: int, trailing_s: float = 600.0) -> Result:
    accounts: dict[str, Account] = {}
    expected: dict[str, set[int]] = {channel: set() for channel in taken}
    for injection in INJECTIONS:
        covers, end_s = injection.covers(unit_s), injection.end * unit_s
        injected = flagged = trailing = on_twin = 0
        reasons: set[str] = set()
        first_s: float | None = None
        passed_s = last_s = -1.0
        for channel in injection.channels:
            for position, one in enumerate(taken[channel]):
                if covers(one.at_s):
                    injected += 1
                    expected[channel].add(position)
                    last_s = max(last_s, one.at_s)
                    if one.quality < 3:
                        passed_s = max(passed_s, one.at_s)
                    else:
                        flagged += 1
                        reasons |= set(one.reasons)
                        first_s = one.at_s if first_s is None else min(first_s, one.at_s)
                elif end_s <= one.at_s < end_s + trailing_s and injection.every is None:
                    expected[channel].add(position)
                    trailing += one.quality >= 3
        if injection.twin is not None and injection.every is None:
            begin_s = injection.begin * unit_s
            for position, one in enumerate(taken[injection.twin]):
                if begin_s <= one.at_s < end_s + trailing_s and "PAIR_DISAGREES" in one.reasons:
                    on_twin += 1
                    expected[injection.twin].add(position)
        begin_s = injection.begin * unit_s
        throughout_s = None if passed_s == last_s else max(passed_s + 1 - begin_s, 0.0)
        accounts[injection.name] = Account(
            injected,
            flagged,
            frozenset(reasons),
            None if first_s is None else first_s - begin_s,
            throughout_s,
            on_twin,
            trailing,
        )
    return Result(
        accounts,
        {
            channel: sum(_is_false(one) and at not in expected[channel] for at, one in enumerate(series))
            for channel, series in taken.items()
        },
        {channel: len(series) - len(expected[channel]) for channel, series in taken.items()},
    )


def table(result: Result) -> str:
    """The accounts as Markdown."""
    lines = [
        "| Fault | Injected | Flagged | | Reasons | First flag after | Throughout after | On the twin |"
        " Up to 10 min after its end |",
        "|---|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    for name, one in result.accounts.items():
        share = f"{one.flagged / one.injected:.1%}" if one.injected else ""
        after, throughout = (_duration(each) for each in (one.after_s, one.throughout_s))
        reasons = ", ".join(f"`{reason}`" for reason in sorted(one.reasons))
        cells = f"{one.injected:,} | {one.flagged:,} | {share} | {reasons} | {after} | {throughout}"
        lines.append(f"| {name} | {cells} | {one.on_twin:,} | {one.trailing:,} |")
    clean, false = sum(result.clean.values()), sum(result.false.values())
    lines.append(f"| nothing (all other readings) | {clean:,} | {false:,} | {false / clean:.4%} | | | | | |")
    return "\n".join(lines)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    if seconds < 120:
        return f"{seconds:g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def false_flags(taken: Series) -> dict[str, tuple[int, int]]:
    """By channel of a clean day: how many readings were flagged, of how many."""
    return {channel: (sum(map(_is_false, series)), len(series)) for channel, series in taken.items()}


def _is_false(one: Taken) -> bool:
    """Flagged, though nothing is wrong. A CO2 sensor's first three minutes are flagged as WARMING_UP."""
    return one.quality != 1 and one.reasons != ("WARMING_UP",)


def main() -> None:
    # A checksum error a minute is no news here.
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        sys.stdout.write(table(faulty(Path(directory), "2026-01-15T00:00:00Z", 1, HOUR_S)) + "\n")
        for start, seed in (("2026-01-15", 1), ("2026-04-10", 3), ("2026-06-15", 2), ("2026-09-20", 4)):
            config = mast_config(Path(directory), f"{start}T00:00:00Z", seed)
            found = false_flags(sample(config, DAY_UNITS * HOUR_S))
            flagged, of = map(sum, zip(*found.values(), strict=True))
            sys.stdout.write(f"| {start} | {seed} | {of:,} | {flagged} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
