"""Wind by direction, in SQL: macros over ``statistics``, for whoever queries a lake (docs/numbers.md).

They aggregate stored rows when they are called, so late and corrected intervals correct them. A parameter
never has the name of a column: DuckDB puts it in the column's place.
"""

from __future__ import annotations

from typing import Final

import duckdb

_MACROS: Final = (
    """shortest_angle(one, other) AS
    ((other - one + 180.0) % 360.0 + 360.0) % 360.0 - 180.0""",
    # An edge belongs to the sector clockwise of it; just below 360 the product may round up to the number.
    """sector(degrees, sectors := 12) AS if(
    sectors BETWEEN 1 AND 360,
    floor((degrees + 180.0 / sectors) % 360.0 * sectors / 360.0) % sectors * 360.0 / sectors,
    error('sectors is their number, from 1 to 360'))""",
    """existing_channel(wanted) AS if(
    EXISTS (FROM statistics WHERE channel = wanted), wanted,
    error('no channel ' || wanted || ' in statistics, which has ' || coalesce(
        (SELECT string_agg(DISTINCT channel, ', ' ORDER BY channel) FROM statistics), 'no rows')))""",
    """by_sector(cup, vane, sectors := 12, twin := NULL, since := NULL, until := NULL) AS TABLE
    WITH valid AS (
        SELECT {mast}, interval_start, channel, if(coalesce(recovery, 1.0) >= 0.5, avg, NULL) AS mean
        FROM statistics
        WHERE channel IN (
                existing_channel(cup), existing_channel(vane), existing_channel(coalesce(twin, cup)))
            AND version > 0
            AND (since IS NULL OR interval_start >= since) AND (until IS NULL OR interval_start < until)
    ), together AS (
        SELECT {mast}, interval_start, max(mean) FILTER (channel = cup) AS speed,
            max(mean) FILTER (channel = twin) AS twin_speed, max(mean) FILTER (channel = vane) AS direction
        FROM valid GROUP BY ALL
    )
    SELECT *, sector(direction, sectors) AS sector FROM together""",
    """wind_rose(cup, vane, sectors := 12, since := NULL, until := NULL) AS TABLE
    WITH placed AS (FROM by_sector(cup, vane, sectors, since := since, until := until)),
    masts AS (
        SELECT {mast}, count(speed + direction) AS total, count(*) - total AS left_out
        FROM placed GROUP BY ALL
    ), sums AS (
        SELECT {mast}, sector, count(speed) AS intervals, avg(speed) AS mean_speed FROM placed GROUP BY ALL
    )
    SELECT {mast}, sector, coalesce(intervals, 0) AS intervals,
        coalesce(intervals, 0) / nullif(total, 0) AS share, mean_speed, left_out
    FROM masts CROSS JOIN (SELECT range * 360.0 / sectors AS sector FROM range(sectors))
    LEFT JOIN sums USING ({mast}, sector) ORDER BY ALL""",
    """frequency_table(cup, vane, sectors := 12, bin_mps := 1.0, since := NULL, until := NULL) AS TABLE
    WITH bins AS (
        SELECT if(bin_mps > 0 AND bin_mps < 'inf'::DOUBLE, bin_mps::DOUBLE,
            error('bin_mps is the width of the bins in m/s, above 0')) AS width
    ), cells AS (
        SELECT {mast}, sector, floor(speed / width + 0.5) * width AS speed_bin, count(*) AS intervals
        FROM by_sector(cup, vane, sectors, since := since, until := until) CROSS JOIN bins
        WHERE speed + direction IS NOT NULL GROUP BY {mast}, sector, speed_bin
    )
    SELECT *, intervals / sum(intervals) OVER (PARTITION BY {mast}) AS share FROM cells ORDER BY ALL""",
    # The tower's lattice alone, outside its shadow, makes two cups differ by some 3 % (docs/numbers.md).
    """tower_shadow(cup, other, vane, sectors := 36, deficit := 0.04, since := NULL, until := NULL) AS TABLE
    WITH placed AS (
        SELECT *, speed + twin_speed + direction IS NULL AS is_out, least(speed, twin_speed) <= 3.0 AS is_calm
        FROM by_sector(cup, vane, sectors, twin := other, since := since, until := until)
    ), masts AS (
        SELECT {mast}, count(*) FILTER (NOT is_out AND is_calm) AS calm, count(*) FILTER (is_out) AS left_out
        FROM placed GROUP BY ALL
    ), ratios AS (
        SELECT {mast}, sector, count(*) AS intervals, intervals >= 10 AS is_judged,
            avg(speed / twin_speed) AS ratio, stddev_samp(speed / twin_speed) AS ratio_sd
        FROM placed WHERE NOT is_out AND NOT is_calm GROUP BY {mast}, sector
    ), judged AS (
        SELECT *, if(is_judged, ratio / median(ratio) FILTER (is_judged) OVER (PARTITION BY {mast}), NULL)
            AS relative
        FROM ratios
    )
    SELECT {mast}, sector, coalesce(intervals, 0) AS intervals, ratio, ratio_sd, relative,
        CASE WHEN relative < 1.0 - deficit THEN cup WHEN relative > 1.0 / (1.0 - deficit) THEN other END
            AS shadowed,
        CASE WHEN shadowed = cup THEN other WHEN relative IS NOT NULL THEN cup END AS undisturbed,
        calm, left_out
    FROM masts CROSS JOIN (SELECT range * 360.0 / sectors AS sector FROM range(sectors))
    LEFT JOIN judged USING ({mast}, sector) ORDER BY ALL""",
)


_STAND_IN: Final = """TEMP TABLE statistics (lake TEXT, gateway TEXT, channel TEXT, interval_s INT,
    interval_start TIMESTAMPTZ, avg DOUBLE, recovery DOUBLE, version INT)"""


def add_wind_macros(connection: duckdb.DuckDBPyConnection, mast: str) -> None:
    """Makes the macros; ``mast`` has the columns that a mast's rows have in common.

    Before any view: DuckDB looks for what a macro reads when it is made, and again at each call, while a lake
    may have no ``statistics``.
    """
    connection.execute(f"CREATE {_STAND_IN}")
    for macro in _MACROS:
        connection.execute("CREATE TEMP MACRO " + macro.replace("{mast}", mast))
    connection.execute("DROP TABLE statistics")
