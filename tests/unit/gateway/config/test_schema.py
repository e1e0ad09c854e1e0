"""The JSON Schema for editors: current, true to the examples, and no stricter than check."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cloud.toml_models import keys_of
from drivers.registry import DRIVERS
from gateway import cli
from gateway.commands.schema import tables
from gateway.config.schema import as_text, config_schema
from tests.support.json_schema import errors
from tests.unit.drivers.plug_ins import DRIVER, Packages
from tests.unit.gateway.config.test_mistakes import FORWARD, GATEWAY, MISTAKES

ROOT = Path(__file__).parents[4]
OTHERS = ("cloud.toml", "import.toml")
EXAMPLES = sorted(path for path in (ROOT / "docs" / "examples").glob("*.toml") if path.name not in OTHERS)
SCHEMA: dict[str, Any] = config_schema(DRIVERS)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(as_text(DRIVERS))


def test_keys_are_printed_as_init_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", "--keys", "clock", "dht11"]) == 0
    assert capsys.readouterr().out == (
        "[clock]\n"
        '# kernel (a Raspberry Pi\'s default): once the kernel reports it set ["kernel" or "always"]\n'
        '#trust = "always"\n'
        "# how long readings wait for it while Kafka is reachable [s; 0 to 604800]\n"
        "#hold_s = 3600.0\n"
        "\n"
        '[[sensor]]\ndriver = "dht11"\n'
        "# GPIO number of the pin (BCM), not its place on the header [0 to 27]\n"
        'pin = "CHANGE-ME"\n'
    )
    assert cli.main(["schema", "--keys", "forward"]) == 0
    assert "\n#drop_if =\n    # lower values [the quantity's unit]\n    #below =\n" in capsys.readouterr().out
    assert cli.main(["schema", "--keys", "clok"]) == 2
    assert "no table of the config is called clok" in capsys.readouterr().err


def test_without_a_name_all_keys_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", "--keys"]) == 0
    blocks = capsys.readouterr().out.rstrip("\n").split("\n\n")
    for (_, heading, kind), block in zip(tables(), blocks, strict=True):
        assert block.startswith(f"{heading}\n# ")
        for key in keys_of(kind):
            assert key.meaning.text, f"{heading} {key.name}"
            assert re.search(rf"^#?{key.name} =", block, re.MULTILINE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(path: Path) -> None:
    assert list(errors(SCHEMA, tomllib.loads(path.read_text()))) == []


def _values(text: str) -> dict[str, Any] | None:
    whole = text + (GATEWAY if "[gateway]" not in text else "") + (FORWARD if "[[" not in text else "")
    try:
        return tomllib.loads(whole)
    except tomllib.TOMLDecodeError:
        return None


def test_what_check_lets_pass_the_schema_lets_pass() -> None:
    for name, (text, reported) in MISTAKES.items():
        values = _values(text)
        if values is not None and all(line.endswith("[warning]") for line in reported):
            assert list(errors(SCHEMA, values)) == [], name


def test_mistakes_that_a_key_shows_by_itself_are_seen_by_the_schema() -> None:
    seen = {
        name
        for name, (text, _) in MISTAKES.items()
        if (values := _values(text)) and list(errors(SCHEMA, values))
    }
    # Pins, pairs, overlapping filters: only check compares.
    assert not {"one pin for two sensors", "twin that isn't there", "forwards that overlap"} & seen
    assert len(seen) >= 115


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[[sensor]]\nname = "a"\ndriver = "dht11"\npin = 28\n', ".sensor[0].pin"),
        ('[[sensor]]\nname = "a"\ndriver = "dht11"\n', ".sensor[0].pin"),
        ('[[sensor]]\nname = "a"\ndriver = "dht11"\npin = 4\ninterval_s = 1\n', ".sensor[0].interval_s"),
        ('[[sensor]]\nname = "a"\ndriver = "bp20"\nadc = { gain = "5V" }\n', ".sensor[0].adc.gain"),
        ('[board]\nkind = "simulated"\nspeed = 0\n', ".board.speed"),
        ('[board]\nfile = "x"\n', ".board.file"),
        ("[quality.co2]\nmax_step = 0\n", ".quality.co2.max_step"),
        ("[outbox]\nmax_bytes = 1.5\n", ".outbox.max_bytes"),
    ],
)
def test_where_the_schema_sees_a_mistake(text: str, place: str) -> None:
    assert list(errors(SCHEMA, tomllib.loads(text + GATEWAY))) == [place]


def test_drivers_of_installed_packages_are_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Packages(tmp_path, monkeypatch).install("acme", "acme-thermometer = acme", acme=DRIVER)
    assert cli.main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert "acme-thermometer" in schema["properties"]["sensor"]["items"]["properties"]["driver"]["enum"]
