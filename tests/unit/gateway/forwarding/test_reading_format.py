"""How readings leave: as Avro once the registry has given the id, as JSON until then; none waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloud.wire.avro_readings import SCHEMA, SUBJECT, from_avro, is_avro
from cloud.wire.reading_records import encode_reading
from gateway.config.model import KafkaConfig
from gateway.forwarding import reading_format
from gateway.forwarding.reading_format import ReadingFormat
from gateway.ports import Record
from tests.support.schema_registry import SmallRegistry, small_registry
from tests.support.servers import eventually
from tests.unit.cloud.wire.test_reading_records import READING

VALUE = encode_reading(READING)
MQTT = ("mqtt-topic", b"fieldgate/mast-07/cup-50m-a/wind_speed")


def record(topic: str = "mqtt.wind_speed", value: bytes = VALUE, *more: tuple[str, bytes]) -> Record:
    return Record(topic, b"mast-07/cup-50m-a.wind_speed", value, (MQTT, *more))


@contextmanager
def format_of(kept: Path, url: str | None, kind: str = "avro") -> Iterator[ReadingFormat]:
    written = ReadingFormat(kept)
    written.apply(config(url, kind))
    try:
        yield written
    finally:
        written.close()


def config(url: str | None, kind: str = "avro") -> KafkaConfig:
    return KafkaConfig(format=kind, schema_registry_url=url)  # type: ignore[arg-type] # one of both


def settled(written: ReadingFormat, until: Callable[[bytes], bool]) -> bytes:
    return eventually(lambda: written.value_of(record()), until=until)


@pytest.fixture
def small() -> Iterator[SmallRegistry]:
    with small_registry() as registry:
        registry.register("other", '"string"')
        registry.register(SUBJECT, SCHEMA)
        yield registry


def test_readings_leave_as_avro_and_nothing_else_does(small: SmallRegistry, tmp_path: Path) -> None:
    with format_of(tmp_path / "schema", small.url) as written:
        avro = settled(written, is_avro)
        assert (avro[:5], from_avro(avro, {2: SCHEMA}), written.problem) == (b"\0\0\0\0\2", VALUE, None)
        for other in (
            record("gateway.runs"),
            record("mqtt.raw", VALUE, ("gateway", b"mast-07"), ("seq", b"1")),
            record("gateway.dead-letter"),
            record("mqtt.wind_speed", b"no reading"),
        ):
            assert written.value_of(other) == other.value
        # A forward's own topic has readings too.
        assert is_avro(written.value_of(record("site.wind")))
        # Back to JSON, while it runs.
        written.apply(config(small.url, "json"))
        assert written.value_of(record()) == VALUE
    assert small.requests == [f"POST /subjects/{SUBJECT}"]


def test_a_registry_that_is_away_stops_nothing(small: SmallRegistry, tmp_path: Path, nowhere: str) -> None:
    kept = tmp_path / "schema"
    with format_of(kept, f"http://{nowhere}") as written:
        assert written.value_of(record()) == VALUE
        problem = eventually(lambda: written.problem or "", until=lambda text: "refused" in text)
        assert problem.startswith(f"readings leave as JSON: http://{nowhere}: ")
        assert written.value_of(record()) == VALUE
        # A config with another address holds at once.
        written.apply(config(small.url))
        settled(written, is_avro)
        assert eventually(kept.exists)
    # A restart during an outage: what is kept counts, from the first reading on.
    gone = json.loads(kept.read_bytes()) | {"url": f"http://{nowhere}"}
    kept.write_text(json.dumps(gone))
    with format_of(kept, f"http://{nowhere}") as written:
        assert written.value_of(record())[:5] == b"\0\0\0\0\2"
        assert written.problem is None


def test_it_is_asked_until_it_answers(
    small: SmallRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_format, "_AGAIN_S", (0.01, 0.05))
    small.subjects.clear()
    with format_of(tmp_path / "schema", small.url) as written:
        problem = eventually(lambda: written.problem or "", until=lambda text: "provision" in text)
        assert "fieldgate.Reading isn't registered as this version has it" in problem
        assert written.value_of(record()) == VALUE
        small.register(SUBJECT, SCHEMA)
        assert is_avro(settled(written, is_avro))
        assert written.problem is None


def test_an_id_that_the_registry_denies_is_not_used_on(small: SmallRegistry, tmp_path: Path) -> None:
    kept = tmp_path / "schema"
    with format_of(kept, small.url) as written:
        settled(written, is_avro)
        eventually(kept.exists)
    # It was set up anew.
    small.subjects.clear()
    with format_of(kept, small.url) as written:
        assert settled(written, lambda value: value == VALUE) == VALUE
        assert "isn't registered" in (written.problem or "")


@pytest.mark.parametrize(
    "kept",
    [
        "", "{", "[]", "{}", '{"url":7,"schema":"x","id":1}', '{"url":"http://a","schema":"another","id":1}',
        '{"url":"http://a","schema":"SCHEMA","id":-1}', '{"url":"http://a","schema":"SCHEMA","id":true}',
        '{"url":"http://b","schema":"SCHEMA","id":1}',
    ],
)  # fmt: skip
def test_a_file_of_anything_else_counts_for_nothing(kept: str, tmp_path: Path) -> None:
    path = tmp_path / "schema"
    path.write_text(kept.replace("SCHEMA", reading_format._SCHEMA))
    with format_of(path, "http://a") as written:
        assert written.value_of(record()) == VALUE
        assert written.problem is not None
