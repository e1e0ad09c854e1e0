"""How far queries have read, from files as Spark 4.0 writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloud.dashboard.behind import Progress, read_progress
from cloud.lake.tables import LakeError

KAFKA = {"mqtt.wind_speed": {"0": 7, "1": 5}, "mqtt.humidity": {"0": 0}}
DELTA = {"sourceVersion": 1, "reservoirId": "b3156722", "reservoirVersion": 4, "index": -1}


def put(folder: Path, batch: int, *sources: object, ended: bool = True) -> None:
    """A batch of a query's checkpoint, as far as it is read."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    about = {"batchWatermarkMs": 0, "batchTimestampMs": 1000 + batch, "conf": {}}
    lines = ["v1", *map(json.dumps, (about, *sources))]
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))
    (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    if ended:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_what_counts_is_the_last_batch_that_ended(tmp_path: Path) -> None:
    put(tmp_path / "ingest/v1", 3, {"mqtt.wind_speed": {"0": 1}})
    put(tmp_path / "ingest/v1", 9, KAFKA)
    put(tmp_path / "ingest/v1", 10, {"mqtt.wind_speed": {"0": 70}}, ended=False)
    put(tmp_path / "mast-600s/v1", 0, DELTA, DELTA)
    put(tmp_path / "young/v1", 0, KAFKA, ended=False)
    # What is no checkpoint.
    (tmp_path / "ingest/v1/alerts-state").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    positions = {"mqtt.wind_speed": {0: 7, 1: 5}, "mqtt.humidity": {0: 0}}
    expected = [Progress("ingest", positions, 1009), Progress("mast-600s", None, 1000)]
    assert read_progress(str(tmp_path)) == expected
    assert read_progress(f"file://{tmp_path}/") == expected


def test_why_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"no checkpoints at .*: name the jobs' own with --checkpoints"):
        read_progress(str(tmp_path / "nowhere"))
    put(tmp_path / "ingest/v1", 3, KAFKA)
    (tmp_path / "ingest/v1/offsets/3").write_text("v1\n{")
    with pytest.raises(LakeError, match="can't be read: "):
        read_progress(str(tmp_path))
