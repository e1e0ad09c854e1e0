"""A fortnight of a made-up fleet as its masts send it: readings, runs, events, daily reports, and six faults.

Wind, sun, battery and reports are those of ``tests.bench.wear``, on the days that end now: its year is the
history of each mast. The seed chooses the faults, their masts and the times at which they begin. Healthy
masts have their troubles too: a visit, a night without an uplink, fog, ice, a gale. A record comes when its
mast has an uplink, later where it had none, or not at all.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from cloud.wire.channel_records import CHANNELS_TOPIC, ChannelRecord, Period, channel_key, encode_channel
from cloud.wire.fields import format_time
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import (
    EVENTS_TOPIC,
    RUNS_TOPIC,
    STATUS_TOPIC,
    Reading,
    encode_reading,
    reading_key,
)
from cloud.wire.site_records import SITES_TOPIC, SiteRecord, encode_site
from cloud.wire.status_records import StatusRecord, encode_status, status_key
from tests.bench.wear import History, simulate
from tests.support.fleet_lake import NAMES, hash_of

DAYS: Final = 14
_HISTORY_DAYS: Final = 98
"""What the trends' longest line is made of."""
_S: Final = 1_000_000
_HOUR: Final = 3600 * _S
_DAY: Final = 24 * _HOUR
_INTERVAL: Final = 600 * _S
_OF_YEAR: Final = {"cup-a": "cup-50m-a", "cup-b": "cup-50m-b", "vane": "vane-48m"}
"""Sensors of the made-up year that have another name here."""
PERIODS_S: Final = {
    "cup-50m-a.wind_speed": 300, "cup-50m-b.wind_speed": 300, "cup-20m-a.wind_speed": 300,
    "cup-20m-b.wind_speed": 300, "vane-48m.wind_direction": 300, "pyranometer.irradiance": 300,
    "battery.voltage": 300, "baro.pressure": 300, "dht.temperature": 60, "dht.humidity": 60,
}  # fmt: skip
FAULTS: Final = ("cup wears", "dome soils", "supply fails at night", "carried away", "uplink too slow",
                 "thermometer's cable", "cup seizes", "vane sticks", "hygrometer sticks",
                 "barometer hangs")  # fmt: skip
_FAULTY: Final = 6
TROUBLES: Final = ("visit", "night without uplink", "gale", "fog", "ice", "upgrade")
_A_DAYS_BACKLOG: Final = 9 * _HOUR
"""So much of what was stored an uplink of five hours takes beside what is new."""
_AWAY_REMEDY: Final = "name, port, firewall; readings are kept in the outbox meanwhile"


class Sent(NamedTuple):
    """A record, when Kafka has it, and when it was made."""

    at_us: int
    topic: str
    key: bytes
    value: bytes
    made_us: int

    @property
    def is_late(self) -> bool:
        """Whether it was stored before."""
        return self.at_us > self.made_us + 60 * _S


@dataclass
class Mast:
    """One mast; ``kind`` is its fault or its trouble, if any. ``end`` is now, at a full interval.

    ``begins_us`` is when that begins. ``hangs_us``: from when on the barometer's driver reads nothing.
    """

    number: int
    seed: int
    kind: str | None
    end: datetime
    away: list[tuple[int, int]] = field(init=False, default_factory=list)
    off: list[tuple[int, int]] = field(init=False, default_factory=list)
    runs: list[int] = field(init=False)
    begins_us: int | None = field(init=False, default=None)
    hangs_us: int = field(init=False, default=2**62)
    _happened: list[tuple[int, str, dict[str, Any]]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.gateway = f"mast-{self.number + 1:02d}"
        self.start_us = round(self.end.timestamp()) * _S - DAYS * _DAY
        self.runs = [self.start_us]
        self._chance = chance = np.random.default_rng([self.seed, self.number])
        n, self._worn_days = DAYS * 144, int(chance.integers(62, 90))
        dense = {_named(name): rows for name, rows in self._year().items()}
        self.history = {name: rows[:, :-n] for name, rows in dense.items()}
        self._now = {name: rows[:, -n:] for name, rows in dense.items()}
        low = self._now["cup-50m-b.wind_speed"]
        for side in "ab":
            self._now[f"cup-20m-{side}.wind_speed"] = low * 0.86 * (1 + 0.01 * chance.normal(size=n))
        hour = (self.start_us // _INTERVAL + np.arange(n)) % 144 / 6
        slow = np.interp(np.arange(n), np.arange(0, n + 72, 72), chance.normal(size=n // 72 + 1))
        celsius = 9 + 4 * np.sin((hour + 5.75 - 9) / 24 * 2 * np.pi) + 2.5 * slow
        self._now["dht.temperature"] = np.stack([celsius, np.full(n, 0.3)])
        humidity = np.clip(62 - 2.4 * (celsius - 9) + 8 * np.roll(slow, 200), 15, 97)
        self._now["dht.humidity"] = np.stack([humidity, np.full(n, 1.0)])
        self._now["baro.pressure"] = np.stack([81 - 0.1 * self.number + 0.4 * np.roll(slow, 90),
                                               np.full(n, 0.02)])  # fmt: skip
        self._bad = np.zeros(n)
        self._report_fields: dict[str, Any] = {}
        getattr(self, "_" + (self.kind or "nothing").replace(" ", "_").replace("'", ""))()
        self._noise = {
            name: chance.normal(size=DAYS * 86_400 // period) for name, period in PERIODS_S.items()
        }
        shared = self._noise["cup-50m-a.wind_speed"]
        for name in ("cup-50m-b", "cup-20m-a", "cup-20m-b"):
            self._noise[f"{name}.wind_speed"] = shared + 0.15 * chance.normal(size=len(shared))
        self._luck = chance.random(DAYS * 1440)
        self.away = [(begin, min(end, self._at(DAYS))) for begin, end in self.away]
        self._stored = [each for away in self.away for each in self._readings(*away)]
        self._events = self._numbered()

    def _year(self) -> dict[str, Any]:
        """Avg and sd of each interval to the end of the fortnight, of a year without longer gaps in it."""
        first = self.end.date() - timedelta(days=364)
        fault = {"cup wears": "twins", "dome soils": "soiling"}.get(self.kind or "")
        begun = 364 - self._worn_days * (fault is not None)
        midnight = datetime(first.year, first.month, first.day, tzinfo=UTC)
        last = round((self.end - midnight) / timedelta(minutes=10))
        wanted = np.arange(last - (_HISTORY_DAYS + DAYS) * 144, last)
        for more in range(100):
            made = simulate(self.seed * 10_000 + 100 * self.number + more, fault, first, begun)
            found = {name: (at, rows) for name, at, rows in _by_channel(made, first)}
            at = found["cup-b.wind_speed"][0]
            if len(at[(at >= wanted[0]) & (at <= wanted[-1])]) == len(wanted):
                self._shadow_deg = made.shadow_deg
                return {
                    name: np.stack([np.interp(wanted, at, rows[0]), np.interp(wanted, at, rows[1])])
                    for name, (at, rows) in found.items()
                }
        raise AssertionError("no year without a gap")

    # What happens to it ------------------------------------------------------------------------------------

    def _at(self, day: float, hour: float = 0.0) -> int:
        return self.start_us + round(day * _DAY + hour * _HOUR)

    def _rows(self, begin_us: int, end_us: int) -> slice:
        last_us = min(end_us, self._at(DAYS))
        return slice((begin_us - self.start_us) // _INTERVAL, (last_us - self.start_us) // _INTERVAL)

    def _begin(self, first: float, last: float) -> float:
        """Draws the day on which it begins, to the hour."""
        day = round(float(self._chance.uniform(first, last)) * 24) / 24
        self.begins_us = self._at(day)
        return day

    def _nothing(self) -> None:
        """A mast without any trouble."""

    def _cup_wears(self) -> None:
        """It began long ago: the year has it."""
        self.begins_us = self._at(DAYS - self._worn_days)

    _dome_soils = _cup_wears

    def _supply_fails_at_night(self) -> None:
        """From some day on the battery is empty before dawn, and the gateway restarts."""
        first = int(self._begin(3, 8))
        for day in range(first, DAYS):
            at_us = self._night(day, 21.5 + float(self._chance.random()))
            self.begins_us = at_us if day == first else self.begins_us
            dip = self._rows(at_us - 6 * _HOUR, at_us + 3 * _HOUR)
            self._now["battery.voltage"][0, dip] -= np.linspace(0.1, 1.4, dip.stop - dip.start)
            self._happened.append((at_us, "under-voltage", {"times": 1}))
            for minutes in (14, 55, 80)[: 1 + day % 3]:
                self._restart(at_us + minutes * 60 * _S, 3 * 60 * _S)
            up_us = self.runs[-1]
            self._happened.append((up_us + 60 * _S, "under-voltage", {"times": 1}))
            self._happened.append((up_us + 90 * 60 * _S, "under-voltage-over", {"lasted_s": 4700}))

    def _night(self, day: int, utc_h: float) -> int:
        """This hour of UTC on the fortnight's n-th day; 21:30 is a quarter past three there."""
        return (self.start_us + day * _DAY) // _DAY * _DAY + round(utc_h * _HOUR)

    def _carried_away(self) -> None:
        metres = int(self._chance.integers(600, 9000))
        moved = {"latitude": 27.7117, "longitude": 85.5043}
        at_us = self._at(self._begin(4, 12))
        self._happened.append((at_us, "site-moved", {"distance_m": metres, **moved}))
        self._report_fields = {
            "site_moved_m": float(metres),
            "findings": [{
                "area": "site", "severity": "warning",
                "what": f"the mast was moved: by GPS it is {metres:,} m from [site]",
                "remedy": "find out who moved it; if it stays, give [site] the new position and its day",
            }],
        }  # fmt: skip

    def _uplink_too_slow(self) -> None:
        """From some day on the uplink is there for five hours a day, too few for the rest."""
        first = int(self._begin(1, 4))
        self.begins_us = self._night(first, 8)
        for day in range(first, DAYS + 1):
            self.away.append((self._night(day, 8), self._night(day, 27)))

    def _thermometers_cable(self) -> None:
        """From some day on ever more readings fail, half of them in the end."""
        first = self._begin(2, 6)
        self._bad = np.clip((np.arange(DAYS * 144) / 144 - first) / (DAYS - first), 0, 1) * 0.55

    def _stands(self, name: str, value: float | None = None) -> None:
        """From some day on a sensor's value is the same, its last one or another."""
        rows = self._rows(self._at(self._begin(2, 10)), self._at(DAYS))
        of_sensor = self._now[name]
        of_sensor[0, rows], of_sensor[1, rows] = of_sensor[0, rows.start] if value is None else value, 0.0

    def _cup_seizes(self) -> None:
        self._stands("cup-20m-a.wind_speed", 0.0)

    def _vane_sticks(self) -> None:
        self._stands("vane-48m.wind_direction")

    def _hygrometer_sticks(self) -> None:
        self._stands("dht.humidity")

    def _barometer_hangs(self) -> None:
        self.hangs_us = at_us = self._at(self._begin(2, 10))
        self._happened.append((at_us + 600 * _S, "sampler-abandoned",
                               {"sensor": "baro", "after_s": 600.0, "total": 1}))  # fmt: skip
        remedy = "check its wiring; it is read again after a restart"
        self._report_fields = {
            "findings": [{"area": "sensor", "severity": "error", "what": "hangs: baro", "remedy": remedy}]
        }

    def _visit(self) -> None:
        day = self._begin(2, 12)
        self._restart(self._at(day), 25 * 60 * _S)
        self._happened.append((self._at(day, 0.6), "reloaded", {"sensors": 7}))

    def _upgrade(self) -> None:
        day = self._begin(1, 12)
        self._restart(self._at(day), 40 * _S)
        fields = {"from": "1.3.0", "to": "1.4.0", "gap_s": 11}
        self._happened.append((self._at(day, 0.05), "upgraded", fields))

    def _night_without_uplink(self) -> None:
        day = int(self._begin(2, 11))
        self.begins_us = self._night(day, 13.5)
        self.away.append((self.begins_us, self._night(day, 24.2)))

    def _gale(self) -> None:
        day = self._begin(2, 12)
        rows = self._rows(self._at(day), self._at(day, 2))
        shape = 1 + 2.2 * np.sin(np.linspace(0, np.pi, rows.stop - rows.start))
        for name in self._now:
            if name.endswith("wind_speed"):
                self._now[name][0, rows] = np.maximum(self._now[name][0, rows], 12) * shape
        self._now["baro.pressure"][0, rows] -= 0.3
        self.away.append((self._at(day, 1), self._at(day, 1.7)))

    def _fog(self) -> None:
        day = self._begin(2, 11)
        rows = self._rows(self._at(day), self._at(day, 18))
        for name, value in (("dht.humidity", 99.0), ("dht.temperature", 6.0)):
            self._now[name][0, rows], self._now[name][1, rows] = value, 0.05
        self._now["pyranometer.irradiance"][:, rows] *= 0.2

    def _ice(self) -> None:
        day = self._begin(2, 12)
        rows = self._rows(self._at(day), self._at(day, 4.5))
        self._now["dht.temperature"][0, rows], self._now["dht.humidity"][0, rows] = -3.0, 96.0
        self._now["cup-50m-a.wind_speed"][:, rows] *= np.linspace(1, 0, rows.stop - rows.start) ** 0.3

    def _restart(self, at_us: int, takes_us: int) -> None:
        self.off.append((at_us, at_us + takes_us))
        self.runs.append(at_us + takes_us)

    # What it sends -----------------------------------------------------------------------------------------

    def sent(self, begin_us: int, end_us: int) -> Iterator[Sent]:
        """What Kafka gets from it between two times: what was stored, and what is new."""
        edges = {each for away in self.away for each in away if begin_us < each < end_us}
        for first_us, last_us in pairwise(sorted({begin_us, end_us, *edges})):
            if not self._is_away(first_us):
                yield from self._readings(first_us, last_us)
        yield from (each for each in self._stored if begin_us < each.at_us <= end_us)
        for at_us, value in self._events:
            if begin_us < (came_us := self.arrives_us(at_us)) <= end_us:
                yield Sent(came_us, EVENTS_TOPIC, self.gateway.encode(), value, at_us)
        yield from self._accounts(begin_us, end_us)

    def _is_away(self, at_us: int) -> bool:
        return any(begin <= at_us < end for begin, end in self.away)

    def arrives_us(self, at_us: int) -> int:
        """When Kafka has what is made at a time; what was stored comes in its order."""
        stored_us = 0
        for begin, end in self.away:
            if begin <= at_us < end:
                stored_us += at_us - begin
                break
            stored_us += end - begin
        else:
            return at_us + 2 * _S
        if len(self.away) == 1:
            return end + 60 * _S
        turn, rest_us = divmod(stored_us, _A_DAYS_BACKLOG)
        return self.away[turn][1] + rest_us * 5 * _HOUR // _A_DAYS_BACKLOG if turn < len(self.away) else 2**62

    def _run_of(self, at_us: int) -> int:
        return bisect_right(self.runs, at_us) - 1

    def _base(self, run: int, period_us: int) -> int:
        """How many periods are over when a run begins."""
        return -(-(self.runs[run] - self.start_us) // period_us)

    def run(self, number: int) -> str:
        """The id of its n-th run."""
        return f"{hash_of(self.gateway, str(number)):08x}0a1b"

    def _readings(self, begin_us: int, end_us: int) -> Iterator[Sent]:
        for name, period_s in PERIODS_S.items():
            sensor, _, quantity = name.partition(".")
            period_us, unit = period_s * _S, QUANTITIES[quantity].unit
            first, last = (-(-(each - self.start_us) // period_us) for each in (begin_us, end_us))
            values = self._values(name, np.arange(first, last), period_us)
            for at, value in zip(range(first, last), values, strict=True):
                time_us = self.start_us + at * period_us
                is_off = any(begin <= time_us < end for begin, end in self.off)
                if is_off or (sensor == "baro" and time_us >= self.hangs_us):
                    continue
                failed = (
                    sensor == "dht" and self._luck[at] < self._bad[(time_us - self.start_us) // _INTERVAL]
                )
                run = self._run_of(time_us)
                seq = at + 1 - self._base(run, period_us)
                reading = Reading(
                    self.gateway, name, quantity, unit, time_us, period_us // 1000,
                    None if failed else float(value), None, None, 9 if failed else 1,
                    ("CHECKSUM",) if failed else (), self.run(run), seq, "synced", _cal(self.gateway, name),
                )  # fmt: skip
                came_us, key = self.arrives_us(time_us), reading_key(self.gateway, name)
                yield Sent(came_us, f"mqtt.{quantity}", key, encode_reading(reading), time_us)

    def _values(self, name: str, at: Any, period_us: int) -> Any:
        avg, sd = self._now[name][:, at * period_us // _INTERVAL]
        quantity = name.partition(".")[2]
        values = avg + {"wind_speed": 0.3}.get(quantity, 1.0) * sd * self._noise[name][at]
        if quantity == "wind_direction":
            return np.round(values % 360, 1)
        if name.startswith("dht"):
            return np.round(values)
        return np.round(np.clip(values, 0, None), 3)

    def _accounts(self, begin_us: int, end_us: int) -> Iterator[Sent]:
        """Records of the site and the channels, of runs and their state, at the end of the time given."""
        key = self.gateway.encode()
        if begin_us <= self.start_us:
            yield from self._at_start()
        if self._is_away(end_us):
            return
        for number, started_us in enumerate(self.runs):
            ends_us = self.runs[number + 1] if number + 1 < len(self.runs) else None
            is_over = ends_us is not None and ends_us <= end_us
            if started_us > end_us or (is_over and (ends_us or 0) <= begin_us):
                continue
            waiting = self._waiting(end_us)
            until_us = next((off for off, up in self.off if up == ends_us), end_us) if is_over else end_us
            last = {}
            for name, period_s in PERIODS_S.items():
                read_us = min(until_us, self.hangs_us) if name.startswith("baro") else until_us
                read = -(-(read_us - self.start_us) // (period_s * _S))
                last[name] = max(0, read - self._base(number, period_s * _S))
            record = {
                "v": 1, "gateway": self.gateway, "run": self.run(number), "boot": f"b{number}",
                "previous_run": self.run(number - 1) if number else None, "dropped": [],
                "started": format_time(started_us), "state": "killed" if is_over else "running",
                "revision": end_us // _S, "last_seq": last, "in_flight": 0, "outbox_records": waiting,
            }  # fmt: skip
            named = key + b"/" + self.run(number).encode()
            yield Sent(end_us, RUNS_TOPIC, named, json.dumps(record).encode(), end_us)
            if not is_over:
                status = StatusRecord(
                    self.gateway, "online", self.run(number), end_us // 1000 * 1000, "1.4.0", "synced",
                    "draining" if waiting else "healthy", end_us // _S,
                )  # fmt: skip
                yield Sent(end_us, STATUS_TOPIC, status_key(self.gateway), encode_status(status), end_us)

    def _at_start(self) -> Iterator[Sent]:
        for name, period_s in PERIODS_S.items():
            sensor, _, quantity = name.partition(".")
            known = QUANTITIES[quantity]
            since_us = self.start_us - (370 * _DAY if name in self.history else 0)
            cup = sensor.startswith("cup")
            record = ChannelRecord(
                gateway=self.gateway, sensor=sensor, quantity=quantity, cal=_cal(self.gateway, name),
                revision=1, in_force=True, periods=(Period(since_us),), unit=known.unit,
                driver=_driver(sensor), interval_s=float(period_s), range=(known.lower, known.upper),
                kind=known.kind,
                expires=(self.end + timedelta(days=250 + 17 * self.number)).date() if cup else None,
                model="NRG 40H" if cup else None, serial=f"1795{self.number:02d}{hash_of(name) % 10**6:06d}",
                height_m=float(sensor[4:6]) if cup else 48.0 if sensor == "vane-48m" else 2.0,
                boom_deg=(self._shadow_deg + 180.0 * sensor.endswith("a")) % 360 if cup else None,
                pair=f"{sensor[:-1]}b" if cup and sensor.endswith("a") else None,
            )  # fmt: skip
            key = channel_key(self.gateway, name, record.cal)
            yield Sent(self.start_us, CHANNELS_TOPIC, key, encode_channel(record), self.start_us)
        site = SiteRecord(
            self.gateway, self.start_us - 370 * _DAY, 1, 27.7 + 0.01 * (self.number % 5),
            85.5 + 0.02 * self.number, 1900.0 + 40 * self.number, 345,
            f"{NAMES[self.number % 8]} {self.number // 8 + 1}", "Example Wind",
        )  # fmt: skip
        yield Sent(self.start_us, SITES_TOPIC, site.key, encode_site(site), self.start_us)

    def _waiting(self, at_us: int) -> int:
        """Readings that wait on its disk."""
        return sum(each.made_us <= at_us < each.at_us for each in self._stored)

    def _numbered(self) -> list[tuple[int, bytes]]:
        """Its events with their numbers, the daily reports among them, in the order of time."""
        reports = [(self._night(day + 1, 5) + self.number * 60 * _S) for day in range(DAYS)]
        found = [
            *self._happened,
            *((at, "report", self._report(at)) for at in reports if at < self._at(DAYS)),
        ]
        numbers: dict[int, int] = {}
        made = []
        for at_us, kind, fields in sorted(found, key=lambda each: each[0]):
            run = self._run_of(at_us)
            numbers[run] = seq = numbers.get(run, 0) + 1
            event = {"v": 1, "gateway": self.gateway, "run": self.run(run), "seq": seq,
                     "time": format_time(at_us), "event": kind, **fields}  # fmt: skip
            made.append((at_us, json.dumps(event).encode()))
        return made

    def _report(self, at_us: int) -> dict[str, Any]:
        day = slice(max(0, (at_us - _DAY - self.start_us) // _INTERVAL), (at_us - self.start_us) // _INTERVAL)
        poor = 1 - float(self._bad[day].mean()) if day.stop > 0 else 1.0
        off_us = sum(end - begin for begin, end in self.off if at_us - _DAY < begin < at_us)
        waiting, is_away = self._waiting(at_us), self._is_away(at_us)
        hung = min(max(0.0, (at_us - self.hangs_us) / _DAY), 1.0)
        good = {"dht": poor, "bar": 1 - hung}
        channels = {
            name: {"sampled": (count := 86_400 // period_s), "forwarded": 0 if is_away else count,
                   "dropped": 0, "recovery": round(good.get(name[:3], 1.0), 4)}
            for name, period_s in PERIODS_S.items()
        }  # fmt: skip
        weak = sum(kind == "under-voltage" and at_us - _DAY < at < at_us for at, kind, _ in self._happened)
        findings = [{"area": "kafka", "severity": "error", "what": "no broker answers",
                     "remedy": _AWAY_REMEDY}] if is_away else []  # fmt: skip
        is_special = bool(self._happened) and self._happened[0][0] < at_us
        return {
            "since_s": 86_400.0 - off_us / _S, "run_uptime_s": (at_us - self.runs[self._run_of(at_us)]) / _S,
            "channels": channels, "uplink": "spilling" if is_away else "healthy",
            "kafka_confirmed_ago_s": 36_000.0 if is_away else 1.0,
            "outbox_records": waiting, "outbox_bytes": 4_000_000 + 4_000 * waiting,
            "outbox_max_bytes": 2 * 10**8, "clock": "synced", "held": 0, "troubles": {}, "parked": {},
            "under_voltage": weak, "throttled": 0, "findings": findings, "disk_free_bytes": 21_000_000_000,
            "cpu_celsius": 41.0 + self.number % 7, "load": 0.21,
            "versions": {"fieldgate": "1.4.0", "python": "3.11.2", "kernel": "6.6.31", "system": "Debian 12"},
            "machine_uptime_s": 4e6, "config_hash": f"{hash_of(self.gateway):08x}",
            **(self._report_fields if is_special else {}),
        }  # fmt: skip


def _by_channel(made: History, first: Any) -> Iterator[tuple[str, Any, Any]]:
    """Each channel of a made-up year: the intervals that it has, and their avg and sd."""
    table = made.tables["statistics"]
    names = np.array(table["channel"].to_pylist())
    starts = table["interval_start"].to_numpy().astype("datetime64[s]")
    at = ((starts - np.datetime64(first, "s")) // np.timedelta64(600, "s")).astype(int)
    rows = np.stack([table["avg"].to_numpy(), table["sd"].to_numpy()])
    for name in dict.fromkeys(names.tolist()):
        yield name, at[names == name], rows[:, names == name]


def _named(channel: str) -> str:
    sensor, _, quantity = channel.partition(".")
    return f"{_OF_YEAR.get(sensor, sensor)}.{quantity}"


def _cal(gateway: str, channel: str) -> str:
    return f"{hash_of(gateway, channel):08x}"


def _driver(sensor: str) -> str:
    kinds = {"c": "hall-anemometer", "v": "wind-vane", "d": "dht11", "p": "pyranometer"}
    return kinds.get(sensor[0], "bp20" if sensor == "baro" else "analog")


def fleet(seed: int, end: datetime, masts: int = 20) -> list[Mast]:
    """The masts; which ones have a fault or a trouble is by the seed."""
    chance = np.random.default_rng(seed)
    drawn, faults = chance.permutation(masts), chance.permutation(FAULTS)[:_FAULTY]
    kinds = dict(zip(drawn.tolist(), (*faults.tolist(), *TROUBLES), strict=False))
    return [Mast(number, seed, kinds.get(number), end) for number in range(masts)]
