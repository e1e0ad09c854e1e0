"""Why something of a mast's page is empty, in plain words and with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cloud.dashboard.frame import moment
from cloud.lake.mast import Channel
from cloud.lake.numbers import IS_COVERED, IS_VALID, View
from cloud.lake.reader import Frame, Missing

_Reason = Callable[[View, Frame], str | None]
_Of = Callable[[View], tuple[Channel | str | None, ...]]
_OTHER_TIME: Final = "Choose another time above."
_NO_ROWS_OF_MAST: Final = (
    "Table mast has nothing of this mast in this time: fieldgate jobs run mast makes it of closed intervals."
)


def why_no_chart(view: View, name: str, frame: Frame) -> str | None:
    """Why a chart's rows have nothing to draw; None where they have. Raises Missing."""
    return _REASONS[name](view, frame)


def why_no_series(view: View, frame: Frame) -> str | None:
    """The same of the channel over time."""
    if any(value is not None for value in frame.column("value")):
        return None
    return _no_value(view, view.channel)


def _no_value(view: View, *channels: Channel | str | None) -> str:
    """Why there is no interval in which all of them, or those of that name, have a value."""
    names = [each.name if isinstance(each, Channel) else each for each in channels if each is not None]
    for name in names:
        counts = view.held.read(
            f"""SELECT count(*), count(*) FILTER ({IS_VALID}),
                count(*) FILTER (version > 0 AND coalesce(count, 0) = 0), count(*) FILTER (version = 0),
                count(*) FILTER (version > 0 AND count > 0 AND NOT {IS_COVERED})
            FROM statistics WHERE channel = ?""",  # noqa: S608 - texts of ours
            [name],
        ).rows[0]
        rows, valid, silent, is_open, few = counts
        rest = rows - silent - is_open - few
        if not rows:
            begin, end = moment(view.mast.begin_ms), moment(view.mast.end_ms)
            return (
                f"Table statistics has nothing of {name} in this time, of the mast from {begin} to {end}: "
                f"fieldgate jobs run statistics makes it of readings. {_OTHER_TIME}"
            )
        if not valid:
            parts = (
                (silent, "have no reading that counts (missing, or failed a test of quality)"),
                (few, "have less than half of their samples"),
                (rest, "have readings that make no value together"),
                (
                    is_open,
                    "are not closed yet, which fieldgate jobs run statistics does soon after their end",
                ),
            )
            said = ", ".join(f"{n:,} {what}" for n, what in parts if n)
            return f"None of {rows:,} intervals of {name} in this time has a value: {said}. {_OTHER_TIME}"
    return f"{' and '.join(names)} have no interval together in this time. {_OTHER_TIME}"


def _needs_rows(of: _Of) -> _Reason:
    """A reason for no rows at all; ``of`` gives the channels that the chart is of."""

    def why(view: View, frame: Frame) -> str | None:
        return None if frame.rows else _no_value(view, *of(view))

    return why


def _mast_has_rows(view: View) -> bool:
    """Raises Missing where there is no such table."""
    (count,) = view.held.read("SELECT count(*) FROM mast").rows[0]
    return bool(count)


def _why_no_shear(view: View, frame: Frame) -> str | None:
    if any(value is not None for value in frame.column("mean_speed")):
        return None
    cups = ", ".join(frame.column("channel"))
    return f"In no interval of this time were all of {cups} above 3 m/s. {_OTHER_TIME}"


def _why_no_turbulence(view: View, frame: Frame) -> str | None:
    if len(frame.rows) > 1:
        return None
    if not _mast_has_rows(view):
        return _NO_ROWS_OF_MAST
    return (
        "Nothing to draw from in this time. It needs two bins of speed with three intervals above 3 m/s, and "
        f"the cup's standard deviation (of an import its column sd). {_OTHER_TIME}"
    )


def _why_no_shadow(view: View, frame: Frame) -> str | None:
    if any(value is not None for value in frame.column("relative")):
        return None
    return (
        "No sector has ten intervals in which vane and twins have values and both cups are above 3 m/s. "
        f"{_OTHER_TIME}"
    )


def _why_no_insolation(view: View, frame: Frame) -> str | None:
    if frame.rows:
        return None
    if not _mast_has_rows(view):
        return _NO_ROWS_OF_MAST
    return f"Table mast has no insolation in this time: it needs half of an interval's samples. {_OTHER_TIME}"


def _why_no_rain(view: View, frame: Frame) -> str | None:
    if any(frame.column("intervals")):
        return None
    return _no_value(view, view.gauge)


def _why_no_recovery(view: View, frame: Frame) -> str | None:
    if any(value is not None for value in frame.column("recovery")):
        return None
    return (
        "No interval of this time is closed yet: fieldgate jobs run statistics closes each a little "
        f"after its end. {_OTHER_TIME}"
    )


_REASONS: Final[Mapping[str, _Reason]] = {
    "wind-rose": _needs_rows(lambda view: (view.cup, view.vane)),
    "distribution": _needs_rows(lambda view: (view.cup,)),
    "diurnal": _needs_rows(lambda view: (view.channel,)), "shear": _why_no_shear,
    "turbulence": _why_no_turbulence, "pair": _needs_rows(lambda view: (view.cup, view.twin)),
    "shadow": _why_no_shadow, "irradiance": _needs_rows(lambda view: (view.sun,)),
    "insolation": _why_no_insolation, "rain": _why_no_rain, "recovery": _why_no_recovery,
}  # fmt: skip
"""What says why a chart is empty, by its name, from a view and the chart's rows."""


def why_no_numbers(view: View, found: Mapping[str, Any]) -> dict[str, str]:
    """What each of ``summary``'s numbers that is null needs, short enough for a tile."""
    mast, cup = view.mast, view.cup
    heights = {each.height_m for each in mast.of("wind_speed") if each.height_m}
    of_cup = "" if cup else "a cup: a channel of wind_speed"
    air = [each for each in ("temperature", "pressure") if not mast.of(each)]
    try:
        table = "" if _mast_has_rows(view) else "table mast to have this time: fieldgate jobs run mast"
    except Missing:
        table = "table mast: fieldgate jobs run mast"
    nothing = "intervals with values in this time"
    needs = {
        "mean": of_cup or nothing,
        "gust": of_cup or "a sample each second, or gust in an import's mapping",
        "highest": of_cup or "samples, or max in an import's mapping",
        "ti": of_cup or table or "sd, and wind above 3 m/s",
        "alpha": ("" if len(heights) > 1 else "cups at two heights: height_m") or table
                 or "all cups above 3 m/s",
        "density": (f"a channel of {' and '.join(air)}" if air else "") or table or nothing,
        "insolation": ("" if mast.of("irradiance") else "a pyranometer: a channel of irradiance") or table
                      or nothing,
        "recovery": "a closed interval: fieldgate jobs run statistics",
    }  # fmt: skip
    return {name: f"needs {needs[name]}" for name, value in found.items() if value is None}


_NO_RUNS: Final = (
    "No run of this mast: gateways publish them, fieldgate jobs run ingest stores them; an import has none."
)
NO_ROWS: Final = {
    "Calibration in force": "None of this mast. Its gateway publishes its channels' records at each start; "
    "fieldgate jobs run ingest stores them.",
    "Alerts": "None of this mast so far: fieldgate jobs run alerts raises them by the rules of its --rules.",
    "Anomalies": "No interval of this mast above its threshold, and no rule broken. "
    "Scores need a model: fieldgate jobs train.",
    "Events": _NO_RUNS,
    "Runs": _NO_RUNS,
    "Losses": "None: no reading of this mast is lost or was dropped, as far as table presence has counted.",
}
"""What a table below the charts says that has no rows."""
