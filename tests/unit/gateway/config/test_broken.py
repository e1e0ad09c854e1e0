"""Broken configs: each problem names file, line and key, and all of them come at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import ConfigError, check, load

CONFIGS = Path(__file__).parents[3] / "fixtures" / "configs"

# (line, key, a part of the message, suggestion); all problems of a file, in their order.
EXPECTED: dict[str, list[tuple[int, str, str, str | None]]] = {
    "syntax_error": [(4, "", "is not valid TOML: expected newline", None)],
    "missing_id": [(2, "gateway.id", "is required", None)],
    "no_gateway": [(1, "gateway.id", "is required", None)],
    "unknown_keys": [
        (4, "mqqt", "is not a known section", "mqtt"),
        (8, "outbox.max_size", "is not a known key", None),
        (9, "outbox.Path", "is not a known key", "path"),
        (16, 'sensor["cup-50m-a"].ofset', "is not a known key of hall-anemometer", "offset"),
    ],
    "wrong_types": [
        (2, "gateway.id", 'must be a string, in "quotes", not 7', None),
        (3, "gateway.latitude", 'must be a number, not "27.7 N"', None),
        (7, "mqtt.port", "must be a whole number, not 1883.5", None),
        (8, "mqtt.keepalive_s", "must be a whole number, not true", None),
        (11, "kafka.bootstrap_servers", 'must be a string, in "quotes", not ["a:9092"]', None),
        (14, "outbox.commit_interval_s", 'must be a number, not "1"', None),
        (17, "board.kind", 'must be one of "raspberry-pi", "simulated", "replay", not 3', None),
    ],
    "out_of_range": [
        (2, "gateway.id", "must be 1 to 63 small letters, digits and hyphens", "mast-07"),
        (3, "gateway.latitude", "are latitude and longitude swapped?", None),
        (7, "mqtt.port", "must be at most 65535, not 70000", None),
        (8, "mqtt.topic_root", "wildcards", None),
        (11, "outbox.max_bytes", 'must be a size such as "512MiB"', None),
        (12, "outbox.min_free_disk", "must be at least 0 bytes, not -1", None),
        (13, "outbox.commit_interval_s", "must be at least 0.1 s, not 0", None),
        (16, "status.listen", 'must be "host:port"', None),
    ],
    "kafka_format": [
        (5, "kafka.schema_registry_url", "must be http(s)://HOST[:PORT][/PATH]", None),
        (6, "kafka.schema_registry_username", "needs schema_registry_password too", None),
    ],
    "kafka_properties": [
        (4, "kafka.topic", "may have {quantity} only, not {channel}", None),
        (6, "kafka.properties.acks", "lost or stored twice", None),
        (7, "kafka.properties.enable.idempotence", "lost or stored twice", None),
        (8, "kafka.properties.partitioner", "murmur2_random", None),
        (9, "kafka.properties.bootstrap.servers", "belongs in kafka.bootstrap_servers", None),
        (11, 'kafka.properties."linger.ms"', "given twice", None),
        (12, "kafka.properties.sasl.oauthbearer", "not [1]", None),
    ],
    "drivers": [
        (6, 'sensor["cup-50m-a"].driver', "there are analog, bp20, dht11, gpsd", "hall-anemometer"),
        (12, 'sensor["dht"].pin', "must be at most 27, not 28", None),
        (13, 'sensor["dht"].interval_s', "must be at least 2 s for dht11, not 1", None),
        (15, 'sensor["cup 30m"].slope', "is required", None),
        (16, 'sensor["cup 30m"].name', "must be 1 to 64 letters", "cup-30m"),
        (19, 'sensor["cup 30m"].at_rest', 'must be one of "zero", "offset"', "offset"),
        (21, "sensor[4].name", "is required", None),
        (22, "sensor[4].driver", "set latitude and longitude in [gateway]", None),
        (27, 'sensor["baro"].interval_s', "must be whole milliseconds, not 0.2505", None),
        (28, 'sensor["baro"].adc.gian', "is not a known key", "gain"),
        (28, 'sensor["baro"].adc.address', "must be at most 0x4b, not 0x50", None),
        (28, 'sensor["baro"].adc.input', 'must be one of 0, 1, 2, 3, "0-1"', None),
    ],
    "wiring": [
        (9, "sensor[1].pair", 'there is no sensor "cup-50m-b"', "cup-30m-a"),
        (14, 'sensor["cup-30m-a"].pin', 'BCM pin 17 is "cup-50m-a"\'s (line 7) already', None),
        (16, 'sensor["cup-30m-a"].pair', "names the sensor itself", None),
        (26, 'sensor["sun"].adc', 'input 3 of converter 0x48 is "baro"\'s (line 21) already', None),
        (29, "sensor[5].name", "second sensor's name (the first: line 5)", None),
        (37, 'sensor["co2-b"].address', 'I2C address 0x62 is "co2-a"\'s (line 33) already', None),
    ],
    "calibration": [
        (9, 'sensor["cup-a"].serial', "must be 1 to 128 printable characters", None),
        (11, 'sensor["cup-a"].expires', "must come after calibrated, 2026-03-12", None),
        (12, 'sensor["cup-a"].accuracy', 'must be ± in the unit, or as "2%" or "40 + 5%"', None),
        (13, 'sensor["cup-a"].range', "must begin below its end, not [75, 0]", None),
        (20, 'sensor["cup-b"].lab', "must be 1 to 128 printable characters", None),
        (21, 'sensor["cup-b"].recalibrate_months', "needs calibrated", None),
        (22, 'sensor["cup-b"].accuracy', 'must be above 0, not "0 + 2%"', None),
        (23, 'sensor["cup-b"].range', "must be the lower and the upper end, as in [0, 75]", None),
        (30, 'sensor["cup-c"].calibrated', "must be from 1950 to 2100, not 2206-03-12", None),
        (31, 'sensor["cup-c"].expires', "must be from 1950 to 2100, not 2207-03-12", None),
        (32, 'sensor["cup-c"].recalibrate_months', "must be at most 120 months, not 240", None),
        (41, 'sensor["cup-d"].recalibrate_months', "means the same as expires: give one of them", None),
        (42, 'sensor["cup-d"].accuracy', "must be ± in the unit", None),
        (
            48,
            'sensor["dht"].accuracy',
            "must be of one channel each: { temperature = …, humidity = … }",
            None,
        ),
        (49, 'sensor["dht"].range.temperature', "must be the lower and the upper end", None),
        (49, 'sensor["dht"].range.humidty', "is not a known key", "humidity"),
        (54, 'sensor["baro"].accuracy', 'must be at most 100%, not "101%"', None),
        (55, 'sensor["baro"].certificate', 'must be a string, in "quotes", not 7', None),
        (62, 'sensor["cup-e"].accuracy.wind_sped', "is not a known key", "wind_speed"),
    ],
    "quality": [
        (4, "quality.wind_sped", '"wind_sped" is no quantity', "wind_speed"),
        (8, "quality.wind_speed.max_stp", "is not a known key", "max_step"),
        (9, "quality.wind_speed.site_range", "must begin below its end, not [40, 4]", None),
        (10, "quality.wind_speed.spike", "must be above 0, not -1", None),
        (11, "quality.wind_speed.stopped_s", 'must be a number, not "300"', None),
        (12, "quality.wind_speed.off[1]", 'must be one of "site-range", "step"', "spike"),
        (15, "quality.temperature.site_range", "as in [0, 75], not [1, 2, 3]", None),
        (17, "quality.temperature.flat_within", "must be a number, not true", None),
        (20, "quality.location.spike_factor", "needs spike too: location has no default", None),
        (21, "quality.location.rest_s", "needs rest_below too", None),
        (24, "quality.humidity.off", "names a test twice", None),
        (25, "quality.humidity.max_step", 'belongs to the test "step", which off switches off', None),
        (26, "quality.humidity.site_range", 'as in [0, 75], not "0-100"', None),
        (34, 'sensor["cup"].quality.max_step', "must be above 0, not 0", None),
        (40, 'sensor["dht"].quality.wind_speed', "the sensor measures temperature, humidity", None),
        (40, 'sensor["dht"].quality.max_step', "must stand in a quantity's table, as in temperature", None),
        (40, 'sensor["dht"].quality.humidity.drift_window_s', "must be at least 3600 s, not 3", None),
        (45, 'sensor["baro"].quality.pressure.max_step', "which off switches off", None),
        (51, 'sensor["sun"].quality', "must be a table, as in { max_step = 10 }", None),
    ],
    "quality_twins": [
        (15, 'sensor["alone"].quality.pair_relative', "needs a twin to compare with", None),
        (20, 'sensor["baro"].quality.site_range', "must begin below its end, not [40, 4]", None),
        (25, 'sensor["sun"].pair', '"cup" (hall-anemometer) measures no irradiance: no twin', None),
    ],
    "faults": [
        (7, "board.faults[1].kind", 'must be one of "stuck", "icing"', "stuck"),
        (8, "board.faults[2].after_s", "must be at least 0 s, not -1", None),
    ],
    "faults_unfit": [
        (7, "board.faults[1].sensor", 'there is no sensor "cups"', "cup"),
        (8, "board.faults[2].kind", 'can\'t have the fault "bit-errors"; there are "stuck"', None),
        (9, "board.faults[3].amount", 'means nothing for kind = "stuck"', None),
        (10, "board.faults[4].every_s", 'counts only for kind = "spike"', None),
        (10, "board.faults[4].amount", "must be above 0 (seconds until the cup stands), not 0", None),
        (11, "board.faults[5].amount", "must be a share of the reads, 0 to 1, not 5", None),
        (12, "board.faults[6].amount", "must be at least 0 (a factor on the pulses), not -0.9", None),
    ],
    "forwards": [
        (8, "forward[2].filter", 'overlaps with "sensors/+/temperature" (line 5)', None),
        (11, "forward[3].filter", 'overlaps with "fieldgate/mast-07/#" (the gateway\'s own topics)', None),
        (14, "forward[4].filter", '"#" must stand alone', None),
        (17, "forward[5].filter", '"+" must stand alone', None),
        (20, "forward[6].filter", "shared subscriptions", None),
        (22, "forward[7].filter", "is required", None),
    ],
    "forward_readings": [
        (10, "forward[1].scale", "belongs in each of the readings where there are several", None),
        (11, "forward[1].path", "belongs in each of the readings where there are several", None),
        (13, "forward[1].readings[1].unit", 'must be "Cel", the unit of temperature, not "F"', None),
        (14, "forward[1].readings[2].scale", "must not be 0", None),
        (14, "forward[1].readings[2].max", "must be above min, 5, not 4", None),
        (15, "forward[1].readings[3].quantity", '"humidty" is no quantity', "humidity"),
        (15, "forward[1].readings[3].channel", 'has {2}, but "a/+" has 1 wildcard', None),
        (16, "forward[1].readings[4].path", 'as in "values.0.t", not "u."', None),
        (16, "forward[1].readings[4].quantity", '"temperature" is that of readings[1] already', None),
        (22, "forward[2].period_s", "must be whole milliseconds, not 1.0005", None),
        (24, "forward[2].readings[1].drop_if.over", "is not a known key", "above"),
        (24, "forward[2].readings[1].ofset", "is not a known key", "offset"),
        (25, "forward[2].readings[2]", "must be a table, as in { key = value }, not 3", None),
        (26, "forward[2].readings[3].period_s", "is not a known key; there are unit, channel, scale", None),
        (26, "forward[2].readings[3].path", 'must be a string, in "quotes", not 4', None),
        (32, "forward[3].readings", "must not be empty", None),
        (38, "forward[4].optional", 'means nothing for payload = "number", only for "json"', None),
        (39, "forward[4].readings", 'means nothing for payload = "number", only for "json"', None),
        (48, "forward[5].readings[1].raw_unit", "must be 1 to 64 printable characters", None),
        (54, "forward[5].readings[2].drop_if", "names no condition; there are below, above, equals", None),
        (59, "forward[6].readings", "must be a list, in [brackets]", None),
        (61, "forward[7].path", 'is required for payload = "json", or readings', None),
        (69, "forward[8].readings[1].quantity", "is required", None),
    ],
    "forward_payloads": [
        (11, "forward[1].payload", 'must be one of "reading", "number", "json", "raw", not "text"', None),
        (16, "forward[2].path", 'means nothing for payload = "number", only for "json"', None),
        (17, "forward[2].period_s", "must be at least 0.001 s, not 0.0005", None),
        (22, "forward[3].quantity", '"temprature" is no quantity', "temperature"),
        (23, "forward[3].period_s", "must be whole milliseconds, not 1.0005", None),
        (24, "forward[3].channel", 'has {2}, but "c/+" has 1 wildcard', None),
        (26, "forward[4].path", 'is required for payload = "json"', None),
        (30, "forward[4].unit", 'must be "Cel", the unit of temperature, not "F"', None),
        (31, "forward[4].time_path", "must be keys and positions with dots between", None),
        (32, "forward[4].channel", '"dht" is a sensor\'s name already', None),
        (33, "forward[4].scale", "must not be 0", None),
        (35, "forward[4].max", "must be above min, 50, not 50", None),
        (36, "forward[4].drop_if", "drops every value", None),
        (41, "forward[5].quantity", 'means nothing for payload = "raw", only for "number" or "json"', None),
        (42, "forward[5].channel", "can't have placeholders", None),
        (46, "forward[6].scale", 'means nothing for payload = "reading"', None),
        (47, "forward[6].chanel", "is not a known key", "channel"),
        (53, "forward[7].path", 'as in "values.0.t", not ".co2"', None),
        (54, "forward[7].channel", "must be 1 to 64 letters", None),
        (55, "forward[7].raw_unit", "must be 1 to 64 printable characters", None),
        (56, "forward[7].drop_if", "names no condition; there are below, above, equals", None),
        (58, "forward[8].quantity", 'is required for payload = "number"', None),
        (61, "forward[8].channel", 'has {1}, but "i" has no wildcards', None),
        (67, "forward[9].drop_if.beneath", "there are below, above, equals", None),
        (71, "forward[10].payload", "not 3", None),
        (72, "forward[10].quantity", 'must be a string, in "quotes", not 4', None),
        (73, "forward[10].scale", 'must be a number, not "2"', None),
    ],
    "replay_columns": [
        (6, "board.columns", 'no column is mapped to dht.temperature; "dht" is no channel', None),
        (6, "board.columns", 'no column is mapped to dht.humidity; "dht" is no channel', None),
    ],
    "replay_mapping": [
        (7, "board.columns.baro.colum", "is not a known key", "column"),
        (7, "board.columns.baro.column", "is required", None),
        (7, "board.columns.baro.scale", 'must be a number, not "0.1"', None),
    ],
    "board": [(4, "board.kind", 'not "raspbery-pi"', "raspberry-pi")],
    "simulated_start": [(5, "board.start", "needs a time zone", None)],
    "not_tables": [
        (1, "gateway", "must be a table: [gateway]", None),
        (2, "sensor", "must be [[sensor]], with two brackets on each side", None),
        (3, "forward[1]", "must be a table", None),
        (4, "mqtt", "must be a table: [mqtt]", None),
    ],
    "far_values": [
        (3, "gateway.latitude", "must be a finite number, not nan", None),
        (4, "gateway.longitude", "must be a finite number, not inf", None),
        (6, "mqtt.port", "is beyond 64 bits", None),
    ],
}


def test_every_fixture_is_expected() -> None:
    assert sorted(path.stem for path in CONFIGS.glob("*.toml")) == sorted([*EXPECTED, "warnings"])


@pytest.mark.parametrize("name", EXPECTED)
def test_problems_have_file_line_and_key(name: str) -> None:
    path = CONFIGS / f"{name}.toml"
    config, problems = check(path)
    assert config is None
    expected = EXPECTED[name]
    assert [(problem.line, problem.key, problem.suggestion) for problem in problems] == [
        (line, key, suggestion) for line, key, _, suggestion in expected
    ]
    for problem, (_, _, message, _) in zip(problems, expected, strict=True):
        assert message in problem.message
        assert problem.file == str(path)
        assert problem.severity == "error"
        assert "\n" not in str(problem)


def test_load_raises_all_problems() -> None:
    path = CONFIGS / "unknown_keys.toml"
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.problems == check(path)[1]
    assert f'{path}:16: sensor["cup-50m-a"].ofset: is not a known key' in str(caught.value)


def test_a_problem_reads_file_line_key_message_guess() -> None:
    path = CONFIGS / "board.toml"
    _, (problem,) = check(path)
    assert str(problem) == (
        f'{path}:4: board.kind: must be one of "raspberry-pi", "simulated", "replay", not "raspbery-pi"'
        ' (did you mean "raspberry-pi"?)'
    )


def test_warnings_leave_a_config() -> None:
    config, problems = check(CONFIGS / "warnings.toml")
    assert config is not None
    assert len(config.sensors) == 3
    assert [(problem.severity, problem.line, problem.key) for problem in problems] == [
        ("warning", 11, 'sensor["cup-50m-a"].slope'),
        ("warning", 22, 'sensor["cup-50m-b"].offset'),
        ("warning", 27, 'sensor["sun"].adc'),
    ]
    assert problems[0].message.startswith("0.0462 m/s per Hz is far from NRG #40's 0.765")


def _problem_of(tmp_path: Path, content: bytes) -> tuple[int | None, str, str]:
    path = tmp_path / "gateway.toml"
    path.write_bytes(content)
    config, (problem,) = check(path)
    assert config is None
    return problem.line, problem.key, problem.message


def test_file_that_is_not_there(tmp_path: Path) -> None:
    config, (problem,) = check(tmp_path / "gateway.toml")
    assert config is None
    assert str(problem) == (
        f"{tmp_path / 'gateway.toml'}:1: there is no such file: fieldgate init writes one, -c names another"
    )


def test_file_that_is_a_directory(tmp_path: Path) -> None:
    _, (problem,) = check(tmp_path)
    assert problem.message == f"is a directory: name the file in it, such as {tmp_path / 'gateway.toml'}"


def test_file_that_is_not_utf8(tmp_path: Path) -> None:
    line, _, message = _problem_of(tmp_path, b'[gateway]\nid = "m"\n# \xe9t\xe9\n')
    assert (line, message) == (3, "is not UTF-8 (byte 0xe9 on this line): save the file as UTF-8")


def test_syntax_error_at_the_end_of_the_file(tmp_path: Path) -> None:
    line, _, message = _problem_of(tmp_path, b'[gateway]\nid = "m"\nlatitude =\n\n')
    assert line == 3
    assert message == "is not valid TOML: invalid value"


def test_key_given_twice_is_a_syntax_error_on_its_line(tmp_path: Path) -> None:
    line, _, message = _problem_of(tmp_path, b'[gateway]\nid = "m"\nid = "n"\n')
    assert line == 3
    assert message == "is not valid TOML: cannot overwrite a value"


def test_file_too_large(tmp_path: Path) -> None:
    assert "larger than 1048576 bytes" in _problem_of(tmp_path, b"#" * (1 << 20) + b"#")[2]


def test_file_nested_without_end(tmp_path: Path) -> None:
    assert _problem_of(tmp_path, b"a = " + b"[" * 50_000)[2] == "is nested too deeply"
    assert _problem_of(tmp_path, b"a = " + b"[" * 100 + b"]" * 100)[2] == "is nested too deeply"


def test_number_with_thousands_of_digits(tmp_path: Path) -> None:
    assert _problem_of(tmp_path, b"a = " + b"9" * 5000)[0] == 1
    assert _problem_of(tmp_path, b"\na = 0x" + b"f" * 5000) == (2, "a", "is beyond 64 bits")


def test_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_bytes(b'\xef\xbb\xbf[gateway]\r\nid = "m"\r\nlatitud = 1\r\n')
    _, problems = check(path)
    assert [(problem.line, problem.key) for problem in problems if problem.severity == "error"] == [
        (3, "gateway.latitud")
    ]


def test_an_unknown_key_and_a_refused_value_hide_nothing_else_in_their_table(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(
        '[gateway]\nid = "Mast"\nlatitud = 1\nelevation_m = 2100\n[[forward]]\nfilter = "a/+b"\n'
        'payload = "number"\nquantity = "temprature"\nmin = 2\nmax = 1\nchanel = "x"\nchannel = "{1}"\n'
    )
    assert [(problem.line, problem.key) for problem in check(path)[1]] == [
        (2, "gateway.id"),
        (3, "gateway.latitud"),
        (6, "forward[1].filter"),
        (8, "forward[1].quantity"),
        (10, "forward[1].max"),
        (11, "forward[1].chanel"),
        (12, "forward[1].channel"),
    ]
