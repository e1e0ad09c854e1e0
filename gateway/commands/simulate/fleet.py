"""A simulated fleet: masts on the ridges of one region, each with its story, period by period."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cloud.wire.site_records import SiteRecord
from gateway.commands.simulate.mast import Place, SimulatedMast
from gateway.commands.simulate.story import tell
from gateway.config import Config, SensorConfig
from gateway.config.quality import site_pressure_kpa
from gateway.ports import Record

_NAMES: Final = ("Ridge", "Pass", "Plateau", "Saddle", "Shoulder", "Dome", "Spur", "Col")
_MIDDLE: Final = (27.7, 85.5)
_UTC_OFFSET_MIN: Final = 345


class Fleet:
    """``gateways`` masts as ``config`` has one, from ``begin_s`` to ``end_s``: the same for each seed."""

    def __init__(
        self, config: Config, gateways: int, seed: int, period_s: int, begin_s: int, end_s: int
    ) -> None:
        self._times = range(begin_s, end_s, period_s)
        digits = max(2, len(str(gateways)))
        self._masts = [
            _mast(config, f"sim-{number:0{digits}}", seed, self._times) for number in range(1, gateways + 1)
        ]

    def __len__(self) -> int:
        """Periods of all masts."""
        return len(self._times) * len(self._masts)

    def records(self) -> Iterator[tuple[int, list[Record]]]:
        """Records in the order in which they leave, with the number of periods they complete."""
        for mast in self._masts:
            yield 0, list(mast.begin())
        for begin_s in self._times:
            for mast in self._masts:
                yield 1, mast.period(begin_s)
        for mast in self._masts:
            yield 0, mast.end()


def _mast(config: Config, gateway: str, seed: int, times: range) -> SimulatedMast:
    chance = random.Random(f"{seed}/{gateway}/place")  # noqa: S311 - no secret
    site = SiteRecord(
        gateway,
        times.start * 1_000_000,
        1,
        round(_MIDDLE[0] + chance.uniform(-1.5, 1.5), 5),
        round(_MIDDLE[1] + chance.uniform(-2.0, 2.0), 5),
        float(chance.randrange(900, 3200, 10)),
        _UTC_OFFSET_MIN,
        f"{chance.choice(_NAMES)} {chance.randrange(1, 100)}",
        "simulated",
    )
    # A mast that stands still has no track: channels without readings would count as lost.
    sensors = tuple(
        _at(each, site.elevation_m or 0.0) for each in config.sensors if "location" not in each.quality
    )
    own = replace(config, gateway=replace(config.gateway, id=gateway), sensors=sensors)
    story = tell(seed, gateway, [each.name for each in config.sensors], times.start, times.stop)
    return SimulatedMast(own, Place(site, chance.getrandbits(32)), story, seed, times.step)


def _at(sensor: SensorConfig, elevation_m: float) -> SensorConfig:
    """The sensor with what the site's height changes: which pressures can occur there."""
    rules = sensor.quality.get("pressure")
    if rules is None:
        return sensor
    there = replace(rules, site_range=site_pressure_kpa(elevation_m))
    return replace(sensor, quality={**sensor.quality, "pressure": there})
