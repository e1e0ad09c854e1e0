"""A support bundle has what helps, says what it hasn't, and holds no secret, wherever that stood."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.commands.support.bundle import (
    MAX_BYTES,
    MAX_LINES_BYTES,
    MAX_PART_BYTES,
    Part,
    archive,
    files_of,
)
from gateway.commands.support.parts import Request, _part, gathered, known_keys
from gateway.commands.support.redaction import HIDDEN, PLACE, Found, Redactor, config_without_secrets

KNOWN: Final = known_keys()
MARK: Final = "Zq7"
"""Nothing else in a bundle has it: what is found with it is the secret."""

CONFIG: Final = """
# the old password was {comment}
[gateway]
id = "mast-07"
latitude = 27.71234
longitude = 85.51234
elevation_m = 2100
[mqtt]
username = "mast"
password = {mqtt}
[kafka]
bootstrap_servers = "127.0.0.1:1"
[kafka.properties]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "mast-07"
sasl.password = {sasl}
"ssl.key.pem" = {pem}
sasl.oauthbearer.config = {oauth}
linger.ms = 7
ssl.key.password = {{ file = "key.password" }}
[status]
listen = ""
token = {token}
[board]
kind = "simulated"
[[sensor]]
name = "baro"
driver = "bp20"
pasword = {unknown}
model = {url}
"""


def contents(packed: bytes) -> dict[str, bytes]:
    """The files of an archive, without its folder."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        for entry in tar:
            opened = tar.extractfile(entry)
            assert opened is not None
            found[entry.name.partition("/")[2]] = opened.read()
    return found


def bundle(parts: list[Part], found: Found, **about: Any) -> dict[str, Any]:
    """What stands in a bundle of these parts."""
    packed = archive(files_of(parts, Redactor(found), about), "b", 0)
    return {name: content.decode() for name, content in contents(packed).items()}


def toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_SECRET: Final = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=3, max_size=24
).map(lambda text: f"{MARK}{text.strip()}x")


@settings(max_examples=15)
@given(st.lists(_SECRET, min_size=9, max_size=9, unique=True))
def test_no_secret_is_in_it_wherever_it_stood(
    tmp_path_factory: pytest.TempPathFactory, secrets: list[str]
) -> None:
    directory = tmp_path_factory.mktemp("b")
    comment, mqtt, sasl, pem, oauth, token, unknown, in_file, in_url = secrets
    (directory / "key.password").write_text(in_file + "\n", encoding="utf-8")
    address = in_url.replace("/", "").replace("@", "").replace('"', "").replace("'", "").replace(" ", "")
    path = directory / "gateway.toml"
    path.write_text(
        CONFIG.format(
            comment=comment.replace("\n", ""), mqtt=toml(mqtt), sasl=toml(sasl), pem=toml(pem),
            oauth=toml(oauth), token=toml(token), unknown=toml(unknown),
            url=toml(f"see http://me:{address}@example.org/x"),
        ),
        encoding="utf-8",
    )  # fmt: skip
    found = Found()
    request = Request(path, 0.1, 10, position=False)
    parts = gathered_config(request, found)
    known = [mqtt, sasl, pem, oauth, token, unknown, in_file]
    lines = [
        {"MESSAGE": f"event=kafka.error error=login with {secret!r} failed", "FIELDGATE_ERROR": secret}
        for secret in known
    ]
    lines += [
        {"MESSAGE": json.dumps({"sent": secret, "b64": base64.b64encode(secret.encode()).decode()})}
        for secret in known
    ]
    # A secret that nobody knows by its value.
    lines.append({"MESSAGE": f"http://me:{address}@example.org/x and http://{address}@example.org/y"})
    told = bundle([*parts, Part("journal", lines=tuple(lines)), Part("x", missing=f"no {mqtt}")], found)
    everything = "\n".join([*told, *told.values()])
    assert MARK not in everything, everything[max(everything.index(MARK) - 200, 0) :][:400]
    for secret in known:
        assert base64.b64encode(secret.encode()).decode() not in everything
    # What is no secret is there.
    config = json.loads(told["config.json"])
    assert config["gateway"]["id"] == "mast-07"
    assert config["kafka"]["properties"]["security"] == {"protocol": "SASL_SSL"}
    assert config["kafka"]["properties"]["ssl"]["key"]["password"] == {"file": "key.password"}
    assert config["mqtt"] == {"username": "mast", "password": HIDDEN}


def gathered_config(request: Request, found: Found) -> list[Part]:
    """The parts that come of the config alone: the others look at the whole machine."""
    parts = []
    for part in gathered(request, found):
        parts.append(part)
        if part.name == "check":
            break
    return parts


@pytest.mark.parametrize(
    "text",
    [
        "sasl.password=Zq7secret, next",
        "PASSWORD: 'Zq7 with blanks'",
        'api_key = "Zq7\\"quoted"',
        "Authorization: Bearer Zq7abcdef0123",
        "x token=Zq7 y",
        "connect mqtt://me:Zq7p@ss@host:1883",
        "key: -----BEGIN PRIVATE KEY-----\nZq7MII\n-----END PRIVATE KEY----- end",
        "-----BEGIN RSA PRIVATE KEY-----\nZq7 cut off",
    ],
)
def test_what_looks_like_a_secret_goes_though_nobody_knows_it(text: str) -> None:
    assert MARK not in Redactor(Found()).text(text)


def test_what_a_message_quotes_and_cuts_goes_too() -> None:
    redactor = Redactor(Found({"hunter2 and more"}))
    assert redactor.text('must be text, not "hunter2 an..." here') == f'must be text, not "{HIDDEN}..." here'
    assert redactor.text('not "http://me:Zq7secr..."') == f'not "http://{HIDDEN}..."'
    assert redactor.text("waiting...") == "waiting..."


def test_what_is_no_secret_stays() -> None:
    text = "event=sensor.silent sensor=baro error=no answer; see http://127.0.0.1:8321/ and a@b.org"
    assert Redactor(Found({"hunter2"})).text(text) == text
    # A short one is replaced where it stands alone, and words stay words.
    assert Redactor(Found({"no"})).text(text) == text.replace("no answer", f"{HIDDEN} answer")


def test_a_config_alone_gives_no_secret_away_and_all_of_them_are_noted() -> None:
    """The first net without the second one, which would hide what this one lets through."""
    known = {"gateway", "id", "latitude", "mqtt", "username", "password", "kafka", "properties", "status"}
    known |= {"token", "sensor", "name", "serial", "columns"}
    raw = {
        "gateway": {"id": "mast-07", "latitude": 47.25},
        "mqtt": {"username": "mast", "password": "Zq7 mqtt"},
        "kafka": {
            "properties": {
                "sasl.jaas.config": "Zq7 jaas",
                "sasl": {"username": "mast", "password": {"credential": "kafka"}},
                "ssl.key.pem": "Zq7 pem",
                "ssl.ca.location": "/etc/ssl/ca.pem",
                "linger.ms": 5,
                "plugin.of.ours": "Zq7 of a property that nobody knows",
            }
        },
        "status": {"token": ["Zq7 first", "Zq7 second"]},
        "sensor": [{"name": "cup-a", "serial": "1795", "pasword": "Zq7 misspelt", "columns": {"own": "v"}}],
    }
    found = Found()
    shown = config_without_secrets(raw, known, found, position=False)
    assert MARK not in json.dumps(shown)
    assert shown == {
        "gateway": {"id": "mast-07", "latitude": PLACE},
        "mqtt": {"username": "mast", "password": HIDDEN},
        "kafka": {
            "properties": {
                "sasl.jaas.config": HIDDEN,
                "sasl": {"username": "mast", "password": {"credential": "kafka"}},
                "ssl.key.pem": HIDDEN,
                "ssl.ca.location": "/etc/ssl/ca.pem",
                "linger.ms": 5,
                "plugin.of.ours": HIDDEN,
            }
        },
        "status": {"token": HIDDEN},
        "sensor": [{"name": "cup-a", "serial": "1795", "pasword": HIDDEN, "columns": {"own": "v"}}],
    }
    assert {"Zq7 mqtt", "Zq7 jaas", "Zq7 pem", "Zq7 first", "Zq7 second", "Zq7 misspelt"} <= found.secrets
    assert found.places == {"47.25"}


def test_a_broken_config_is_not_shown_at_all(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(
        f'[mqtt\npassword = "{MARK} \\"quoted\\""\n#sasl.password = {MARK}plain\n  "ssl.key.pem"={MARK}pem\n'
    )
    found = Found()
    line = {"MESSAGE": f'with {MARK} "quoted", {MARK}plain and {MARK}pem'}
    parts = gathered_config(Request(path, 0.1, 10, position=False), found)
    told = bundle([*parts, Part("log", lines=(line,))], found)
    assert list(told) == ["manifest.json", "check.json", "log.jsonl"]
    assert json.loads(told["log.jsonl"]) == {"MESSAGE": f"with {HIDDEN}, {HIDDEN} and {HIDDEN}"}
    (missing,) = json.loads(told["manifest.json"])["missing"]
    assert missing["part"] == "config"
    assert "gateway.toml:1" in missing["why"]
    assert MARK not in "".join(told.values())


def test_the_position_is_left_out_unless_it_is_asked_for() -> None:
    raw = {"gateway": {"id": "m", "latitude": 27.71234, "longitude": 85.5, "elevation_m": 2100}}
    found = Found()
    shown = config_without_secrets(raw, KNOWN, found, position=False)
    assert shown["gateway"] == {"id": "m", "latitude": PLACE, "longitude": PLACE, "elevation_m": 2100}
    redactor = Redactor(found)
    assert redactor.text("at 27.71234, 85.5; 127.71234") == f"at {PLACE}, {PLACE}; 127.71234"
    assert redactor.value({"latitude_of": [27.71234, 2.5]}) == {"latitude_of": [PLACE, 2.5]}
    assert config_without_secrets(raw, KNOWN, Found(), position=True) == raw


def test_sensors_and_columns_are_shown_by_whatever_name() -> None:
    raw = {
        "board": {
            "kind": "replay",
            "columns": {"dht.humidity": "rh_percent", "baro": {"column": "pressure"}},
        },
        "sensor": [{"name": "a", "driver": "dht11", "accuracy": {"temperature": "40 + 5%"}}],
    }
    found = Found()
    assert config_without_secrets(raw, KNOWN, found, position=True) == raw
    assert found.secrets == set()


def test_a_part_that_fails_is_named_and_the_others_are_there() -> None:
    def broken() -> Any:
        raise ZeroDivisionError(f"with password={MARK}")

    told = bundle([_part("broken", broken), Part("fine", {"a": 1})], Found(), made="now")
    assert set(told) == {"manifest.json", "fine.json"}
    manifest = json.loads(told["manifest.json"])
    assert manifest["made"] == "now"
    assert manifest["files"] == [
        {
            "name": "fine.json",
            "bytes": len(told["fine.json"]),
            "sha256": hashlib.sha256(told["fine.json"].encode()).hexdigest(),
        }
    ]
    (missing,) = manifest["missing"]
    assert missing["part"] == "broken"
    assert missing["why"].startswith("ZeroDivisionError(")
    assert "Traceback" in missing["why"]
    assert MARK not in missing["why"]


def test_its_size_is_bounded_and_the_newest_lines_are_kept() -> None:
    line = {"MESSAGE": "x" * 1000}
    lines = (*[line] * 5_000, {"MESSAGE": "the last"})
    parts = [Part("big", ["y" * 100] * 50_000), *(Part(f"journal-{each}", lines=lines) for each in range(4))]
    files = files_of(parts, Redactor(Found()), {})
    assert sum(len(file.content) for file in files) < MAX_BYTES + 10_000
    by_name = {file.name: file for file in files}
    cut = json.loads(by_name["big.json"].content)
    assert cut["cut"]
    assert len(by_name["big.json"].content) <= MAX_PART_BYTES
    kept = by_name["journal-0.jsonl"].content
    assert len(kept) <= MAX_LINES_BYTES
    assert json.loads(kept.splitlines()[-1]) == {"MESSAGE": "the last"}
    manifest = json.loads(by_name["manifest.json"].content)
    assert manifest["files"][1]["note"] == f"the newest {len(kept.splitlines())} of 5001 lines"
    assert [each["part"] for each in manifest["missing"]] == ["journal-2", "journal-3"]
    assert "the bundle is full" in manifest["missing"][0]["why"]


def test_the_command_writes_it_and_says_what_is_missing(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(
        '[gateway]\nid = "m"\n[mqtt]\nport = 1\nusername = "u"\npassword = "Zq7secret"\n'
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[outbox]\npath = "outbox.db"\n[status]\nlisten = ""\n'
        '[board]\nkind = "simulated"\n[[sensor]]\nname = "baro"\ndriver = "bp20"\n'
    )
    target = tmp_path / "bundle.tar.gz"
    command = [
        sys.executable, "-m", "gateway.cli", "support-bundle", str(target), "-c", str(config),
        "--timeout", "0.5",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote {target}: ")
    assert "missing status: the status page is off" in done.stdout
    assert target.stat().st_mode & 0o777 == 0o600
    told = contents(target.read_bytes())
    assert {
        "manifest.json",
        "config.json",
        "check.json",
        "versions.json",
        "machine.json",
        "doctor.json",
    } <= set(told)
    assert MARK.encode() not in gzip.decompress(target.read_bytes())
    findings = json.loads(told["doctor.json"])
    assert {"config", "sensor", "mqtt", "kafka"} <= {each["subject"] for each in findings}
    assert json.loads(told["machine.json"])["kernel"].startswith("Linux")
    # Another one is not written over it.
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (again.returncode, again.stderr) == (1, f"fieldgate: {target}: File exists\n")
    assert contents(target.read_bytes()) == told
