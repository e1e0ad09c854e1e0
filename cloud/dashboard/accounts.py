"""What became of the masts' readings, and how fresh the tables are: sums over tables, one at a time."""

from __future__ import annotations

from typing import Final

from cloud.errors import CloudError
from cloud.lake.reader import Frame, LakeReader, Missing

RUNS: Final = """SELECT gateway, run, state, epoch_ms(started) AS started_at, epoch_ms(ended) AS ended_at,
    try_cast(list_sum(map_values(last_seq)) AS BIGINT) AS sampled, in_flight, outbox_records,
    coalesce(list_sum(map_values(dropped_records)), 0)::BIGINT AS dropped, drops_unknown
    FROM runs ORDER BY runs.started DESC LIMIT 300"""
"""The newest runs: what each has numbered, what waits, and what it announced as dropped."""

PAYLOADS: Final = """WITH newest AS (
        SELECT reason, unnest(arg_max({
            'at': epoch_ms(kafka_time), 'gateway': gateway, 'source': left(source, 200),
            'bytes': payload_bytes,
            'payload': coalesce(try(decode(payload))[:200], '0x' || left(hex(payload), 200))
        }, kafka_time, 5)) AS each FROM quarantine WHERE overflow IS NULL GROUP BY reason
    )
    SELECT left(reason, 300) AS reason, each.gateway, each.at AS arrived_at, each.source, each.bytes,
        each.payload
    FROM newest ORDER BY newest.reason, each.at DESC LIMIT 500"""
"""The newest five of each reason; a payload that is no text in hexadecimal digits. By ``arg_max``, which
holds five of them, not all as a window would."""

_NEWEST: Final = " WHERE date >= (SELECT max(date) FROM {0}) - 1"
_TABLES: Final = {
    "statistics": _NEWEST, "mast": _NEWEST, "anomalies": _NEWEST, "alerts": "", "presence": "", "runs": "",
    "channels": "", "sites": "",
}  # fmt: skip
"""Those whose rows say when they were written, of large ones the rows of the newest two days.

Not readings: they are too many, and ``presence`` has their newest."""


def balance(reader: LakeReader) -> Frame:
    """What became of all that each mast has numbered: the rest of it is in the lake.

    Without run records or counts the rest is null. Raises Missing, LakeError.
    """
    sampled = dict(
        reader.read(
            "runs",
            "SELECT gateway, try_cast(sum(list_sum(map_values(last_seq))) AS BIGINT) FROM runs GROUP BY ALL",
        ).rows
    )
    missing = reader.read(
        "presence",
        # What many runs claim together may be more than a BIGINT holds: then it isn't known.
        "SELECT gateway, try_cast(sum(pending) AS BIGINT), "
        "try_cast(sum(announced) AS BIGINT), try_cast(sum(lost) AS BIGINT) "
        "FROM presence GROUP BY ALL ORDER BY sum(lost) DESC, gateway",
    )
    rows = []
    for gateway, *counts in missing.rows:
        total = sampled.get(gateway)
        is_known = total is not None and None not in counts
        rows.append((gateway, total, total - sum(counts) if is_known else None, *counts))
    return Frame(("gateway", "sampled", "stored_or_quarantined", "waiting", "dropped", "lost"), rows)


def freshness(reader: LakeReader) -> Frame:
    """When a row of each table was written last, or what is missing. Raises Missing where all are."""
    rows: list[tuple[str, int | None, str]] = []
    for table, newest in _TABLES.items():
        sql = f"SELECT epoch_ms(max(updated_at)) FROM {table}{newest.format(table)}"  # noqa: S608
        try:
            ((at,),) = reader.read(table, sql).rows
            rows.append((table, at, ""))
        except CloudError as error:
            rows.append((table, None, str(error)))
    if all(problem for _, _, problem in rows):
        raise Missing(rows[0][2])
    return Frame(("table", "written_at", "missing"), rows)
