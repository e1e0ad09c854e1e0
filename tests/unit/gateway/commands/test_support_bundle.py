"""A support bundle has what helps, names what it hasn't, and holds no secret, wherever that stood."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings, strategies as st

from cloud.toml_models import keys_of, tables_of
from gateway.commands.support.command import MAX_PART_BYTES, Part, Request, _part, archive, files_of, gathered
from gateway.commands.support.redaction import HIDDEN, Redactor, shown_config, shown_entry
from gateway.config.model import SECTIONS
from gateway.config.values import SECRET
from tests.support.servers import fieldgate

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


def bundle(parts: list[Part], hidden: set[str], **about: Any) -> dict[str, Any]:
    """What stands in a bundle of these parts."""
    packed = archive(files_of(parts, Redactor(hidden), about), "b", 0)
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
    address = re.sub(r"""[/@"'\s]""", "", in_url)
    path = directory / "gateway.toml"
    path.write_text(
        CONFIG.format(
            comment=comment.replace("\n", ""), mqtt=toml(mqtt), sasl=toml(sasl), pem=toml(pem),
            oauth=toml(oauth), token=toml(token), unknown=toml(unknown),
            url=toml(f"see http://me:{address}@example.org/x"),
        ),
        encoding="utf-8",
    )  # fmt: skip
    hidden: set[str] = set()
    parts = gathered_config(Request(path, 0.1, 10, position=False), hidden)
    known = [mqtt, sasl, pem, oauth, token, unknown, in_file]
    entries = [
        {"MESSAGE": f"event=kafka.error error=login with {secret!r} failed", "FIELDGATE_EVENT": "kafka.error",
         "FIELDGATE_ERROR": f"login with {secret} failed", "FIELDGATE_SAID": secret}
        for secret in known
    ]  # fmt: skip
    entries += [
        {"MESSAGE": json.dumps({"sent": secret, "b64": base64.b64encode(secret.encode()).decode()})}
        for secret in known
    ]
    # A secret that no part of the config has.
    entries.append({"MESSAGE": f"http://me:{address}@example.org/x and http://{address}@example.org/y"})
    lines = tuple(map(shown_entry, entries))
    made = bundle([*parts, Part("journal", lines=lines), Part("x", missing=f"no {mqtt}")], hidden)
    everything = "\n".join([*made, *made.values()])
    assert MARK not in everything, everything[max(everything.index(MARK) - 200, 0) :][:400]
    for secret in known:
        assert base64.b64encode(secret.encode()).decode() not in everything
    # What is no secret is there.
    config = json.loads(made["config.json"])
    assert config["gateway"]["id"] == "mast-07"
    assert config["kafka"]["properties"]["security"] == {"protocol": "SASL_SSL"}
    assert config["kafka"]["properties"]["ssl"]["key"]["password"] == {"file": HIDDEN}
    assert config["mqtt"] == {"username": "mast", "password": HIDDEN}


def _basic(secret: str) -> str:
    return base64.b64encode(f"mast:{secret}".encode()).decode()


_CODED: Final[dict[str, Callable[[str], str]]] = {
    "basic": _basic,
    "base64 in the middle": lambda secret: base64.b64encode(f"xx{secret}yz".encode()).decode().rstrip("="),
    "base64 for addresses": lambda secret: base64.urlsafe_b64encode(f"ab?~{secret}".encode()).decode(),
    "base64 behind a path": lambda secret: f"https://host/a/{_basic(secret)}",
    "base64 in an address": lambda secret: f"https://host/x%3F{quote(_basic(secret), safe='')}",
    "in an address": lambda secret: quote(secret, safe=""),
    "some of it": lambda secret: "".join(f"%{ord(each):02x}" for each in secret[:3]) + quote(secret[3:]),
    "twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "of a form": lambda secret: f"x+{quote_plus(secret)}",
}


@pytest.mark.parametrize("coded", _CODED)
@pytest.mark.parametrize("secret", [f"{MARK}!pass/word+{{1}}", f"a {MARK} é?>~", f"{MARK}-simple"])
def test_a_secret_is_hidden_in_base64_and_percent_encoded(coded: str, secret: str, tmp_path: Path) -> None:
    found = _CODED[coded](secret)
    for host in ("localhost", found):
        path = tmp_path / "gateway.toml"
        path.write_text(
            f'[gateway]\nid = "mast-07"\n[mqtt]\npassword = {toml(secret)}\nhost = {toml(host)}\n', "utf-8"
        )
        hidden: set[str] = set()
        parts = gathered_config(Request(path, 0.1, 10, position=False), hidden)
        entries = [
            {"MESSAGE": f"connected with {found}, then went on"},
            {"FIELDGATE_EVENT": "mqtt.refused", "FIELDGATE_ADDRESS": found, "FIELDGATE_ERROR": f"at {found}"},
        ]
        made = bundle([*parts, Part("journal", lines=tuple(map(shown_entry, entries)))], hidden)
        assert [name for name, text in made.items() if found in text or json.dumps(found)[1:-1] in text] == []
        assert "then went on" in made["journal.jsonl"]
        shown = json.loads(made["config.json"])["mqtt"]["host"]
        assert (HIDDEN in shown) == (host == found)


_PLACES: Final = (
    "gateway", "gateway.token", "mqtt.password", "mqtt.pasword", "kafka.properties.sasl.password",
    "kafka.properties.plugin.of.ours", "kafka.sasl", "status.token", "uplink.reset_command",
    "forward.0.password", "secrets", "sensor.0.options", "sensor.1.api_key", "board.password", "board.0.key",
    "clock.ntp.key",
)  # fmt: skip
"""Where a secret may have been written: known keys, misspelt ones, sections that there are none of."""


@given(
    st.sampled_from(_PLACES),
    st.recursive(
        _SECRET, lambda inner: st.lists(inner, min_size=1) | st.dictionaries(st.just("a"), inner, min_size=1)
    ),
)
def test_a_secret_planted_anywhere_in_a_config_is_hidden_and_known(place: str, planted: Any) -> None:
    raw: Any = {
        "gateway": {"id": "m"},
        "forward": [{}],
        "sensor": [{"driver": "bp20"}, {"driver": "plug-in"}],
    }
    *path, key = place.split(".")
    table = raw
    for part in path:
        table = table[int(part)] if part.isdigit() and isinstance(table, list) else table.setdefault(part, {})
    table[key] = planted
    shown, hidden = shown_config(raw, position=True)
    assert MARK not in json.dumps(shown, ensure_ascii=False)
    assert any(MARK in each for each in hidden)
    assert MARK not in json.dumps(Redactor(hidden).value({"found": f"with {sorted(hidden)[0]}"}))


@pytest.mark.parametrize("place", ["model", "name", "filter", "host", "schema"])
@given(
    st.sampled_from(["mqtt://me:{}@host/x", "http://{}@host", "https://host/?token={}", "wss://host/#k={}"])
)
def test_a_secret_in_an_address_is_hidden_under_any_key(place: str, address: str) -> None:
    secret = address.format(f"{MARK}abc")
    raw = {
        "mqtt": {"host": secret},
        "sensor": [{"driver": "bp20", place: secret}],
        "forward": [{place: secret}],
    }
    shown, _ = shown_config(raw, position=False)
    assert MARK not in json.dumps(shown)


def gathered_config(request: Request, hidden: set[str]) -> list[Part]:
    """The parts that come of the config alone: the others are of the whole machine."""
    parts = []
    for part in gathered(request, hidden):
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
        "error='Zq7 and more",
        'error="Zq7',
    ],
)
def test_of_free_text_no_value_is_shown_that_may_be_a_secret(text: str) -> None:
    assert MARK not in Redactor(set()).text(text)


def test_what_a_message_quotes_and_cuts_is_hidden_too() -> None:
    redactor = Redactor({"hunter2 and more"})
    assert redactor.text('must be text, not "hunter2 an..." here') == f"must be text, not {HIDDEN} here"
    assert redactor.text('not "http://me:Zq7secr...') == f"not {HIDDEN}"
    assert redactor.text("waiting...") == "waiting..."


def test_what_is_no_secret_stays() -> None:
    text = "event=sensor.silent sensor=baro error=it doesn't answer; see http://127.0.0.1:8321/ and a@b.org"
    assert Redactor({"hunter2", "no"}).text(text) == text


def test_of_the_daemons_log_entries_named_fields_are_shown() -> None:
    entry = {
        "__REALTIME_TIMESTAMP": "1763800000000000", "PRIORITY": "4", "_PID": "7", "_HOSTNAME": "mast",
        "MESSAGE": "event=sensor.silent sensor=baro said=x", "FIELDGATE_EVENT": "sensor.silent",
        "FIELDGATE_SENSOR": "baro", "FIELDGATE_SAID": "x", "FIELDGATE_SILENT_S": "8",
    }  # fmt: skip
    assert shown_entry(entry) == {
        "time": "1763800000000000", "priority": "4", "pid": "7", "event": "sensor.silent", "sensor": "baro",
        "said": HIDDEN, "silent_s": "8",
    }  # fmt: skip
    assert shown_entry({"MESSAGE": b"hi\xff", "_PID": 9}) == {"pid": "9", "message": "hi\ufffd"}
    assert shown_entry({"MESSAGE": b"hi"}) == {"message": "hi"}


def test_a_config_alone_gives_no_secret_away() -> None:
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
                "plugin.of.ours": "Zq7 of a property that is not listed",
            }
        },
        "status": {"token": ["Zq7 first", "Zq7 second"]},
        "board": {"kind": "replay", "columns": {"own": "v"}},
        "sensor": [
            {"name": "cup-a", "driver": "dht11", "pin": 4, "serial": "1795", "pasword": "Zq7 misspelt"}
        ],
    }
    shown, hidden = shown_config(raw, position=False)
    assert shown == {
        "gateway": {"id": "mast-07", "latitude": HIDDEN},
        "mqtt": {"username": "mast", "password": HIDDEN},
        "kafka": {
            "properties": {
                "sasl.jaas.config": HIDDEN,
                "sasl": {"username": "mast", "password": {"credential": HIDDEN}},
                "ssl.key.pem": HIDDEN,
                "ssl.ca.location": "/etc/ssl/ca.pem",
                "linger.ms": 5,
                "plugin.of.ours": HIDDEN,
            }
        },
        "status": {"token": [HIDDEN, HIDDEN]},
        "board": {"kind": "replay", "columns": {"own": "v"}},
        "sensor": [{"name": "cup-a", "driver": "dht11", "pin": 4, "serial": "1795", "pasword": HIDDEN}],
    }
    assert {"Zq7 mqtt", "Zq7 jaas", "Zq7 pem", "Zq7 first", "Zq7 second", "Zq7 misspelt", "47.25"} <= hidden


def _secrets(kind: type[Any], *path: str) -> Iterator[tuple[str, ...]]:
    """The places of a section's secrets: what may be named in place of being written down."""
    for key in keys_of(kind):
        if str(SECRET) in str(key.hint):
            yield (*path, key.name)
        elif len(tables := tables_of(key.hint)) == 1:
            yield from _secrets(tables[0], *path, key.name)


_KEY: Final = "5a71" * 16
"""A key that proves runs: hexadecimal digits."""
_ALL_SECRETS: Final = tuple(place for name, kind in SECTIONS.items() for place in _secrets(kind, name))


def test_the_command_writes_it_without_secrets_and_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each secret of the model is in the config, and one in the environment."""
    assert ("kafka", "schema_registry_password") in _ALL_SECRETS
    assert len(_ALL_SECRETS) >= 4
    raw: dict[str, Any] = {
        "gateway": {"id": "mast-07"},
        "kafka": {
            "bootstrap_servers": "127.0.0.1:1",
            "format": "avro",
            "schema_registry_url": "http://127.0.0.1:1",
            "schema_registry_username": "u",
        },
        "mqtt": {"port": 1, "username": "u"},
        "status": {"listen": ""},
        "board": {"kind": "simulated"},
    }
    for at, (section, key) in enumerate(_ALL_SECRETS):
        raw[section][key] = _KEY if key == "identity_key" else f"{MARK}planted{at:032d}"
    sections = (f"[{name}]\n" + "".join(f"{key} = {json.dumps(text)}\n" for key, text in each.items())
                for name, each in raw.items())  # fmt: skip
    config, target = tmp_path / "gateway.toml", tmp_path / "bundle.tar.gz"
    config.write_text("\n".join([*sections, '[[sensor]]\nname = "baro"\ndriver = "bp20"\n']))
    monkeypatch.setenv("FIELDGATE_PASSWORD", f"{MARK}in the environment")
    arguments = ("support-bundle", str(target), "-c", str(config), "--timeout", "0.5")
    done = fieldgate(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote {target}: ")
    assert "missing status: the status page is off" in done.stdout
    assert target.stat().st_mode & 0o777 == 0o600
    packed = gzip.decompress(target.read_bytes())
    assert [each for each in (MARK, _KEY) if each.encode() in packed] == []
    made = contents(target.read_bytes())
    parts = ("manifest", "config", "check", "versions", "machine", "doctor", "units")
    assert {f"{part}.json" for part in parts} <= set(made)
    shown = json.loads(made["config.json"])
    for section, key in _ALL_SECRETS:
        assert shown[section][key] == HIDDEN
    areas = {each["area"] for each in json.loads(made["doctor.json"])}
    assert {"config", "sensor", "mqtt", "kafka"} <= areas
    assert json.loads(made["machine.json"])["kernel"].startswith("Linux")
    # Another one is not written over it.
    again = fieldgate(*arguments)
    assert (again.returncode, again.stderr) == (1, f"fieldgate: {target}: File exists\n")
    assert contents(target.read_bytes()) == made


@pytest.mark.parametrize(
    ("text", "logged"),
    [
        (
            f'[mqtt\npassword = "{MARK} \\"quoted\\""\n#sasl.password = {MARK}plain\n"ssl.key.pem"={MARK}pem',
            (f'with "{MARK} quoted"', f"sasl.password={MARK}plain", f"'{MARK}pem'"),
        ),
        (f'[mqtt]\npassword = "{MARK}secret\n', (f"login {MARK}secret failed",)),
        (f'id = "a"\nid = "b"\nx = \'{MARK}secret\'\n', (f"login {MARK}secret failed",)),
    ],
    ids=["no table", "no end of a text", "a key twice"],
)
def test_a_broken_config_is_not_shown_and_what_it_may_hold_is_hidden_elsewhere(
    tmp_path: Path, text: str, logged: tuple[str, ...]
) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    hidden: set[str] = set()
    parts = gathered_config(Request(path, 0.1, 10, position=False), hidden)
    lines = tuple(shown_entry({"MESSAGE": each}) for each in logged)
    made = bundle([*parts, Part("log", lines=lines)], hidden)
    assert list(made) == ["manifest.json", "check.json", "log.jsonl"]
    (missing,) = json.loads(made["manifest.json"])["missing"]
    assert (missing["part"], "gateway.toml:" in missing["why"]) == ("config", True)
    assert MARK not in "".join(made.values())


def test_the_position_is_left_out_unless_it_is_requested() -> None:
    raw = {"gateway": {"id": "m", "latitude": 27.71234, "longitude": 85.5123, "elevation_m": 2100}}
    shown, hidden = shown_config(raw, position=False)
    assert shown["gateway"] == {"id": "m", "latitude": HIDDEN, "longitude": HIDDEN, "elevation_m": 2100}
    redactor = Redactor(hidden)
    assert redactor.text("at 27.71234, 85.5123; 28") == f"at {HIDDEN}, {HIDDEN}; 28"
    assert redactor.value({"latitude_of": [27.71234, 2.5]}) == {"latitude_of": [HIDDEN, 2.5]}
    assert shown_config(raw, position=True) == (raw, set())


def test_a_part_that_fails_is_named_and_the_others_are_there() -> None:
    def broken() -> Any:
        raise ZeroDivisionError(f"with password={MARK}")

    made = bundle([_part("broken", broken), Part("fine", {"a": 1})], set(), made="now")
    assert set(made) == {"manifest.json", "fine.json"}
    manifest = json.loads(made["manifest.json"])
    assert manifest["made"] == "now"
    assert manifest["files"] == {"fine.json": len(made["fine.json"])}
    (missing,) = manifest["missing"]
    assert missing["part"] == "broken"
    assert re.fullmatch(r"ZeroDivisionError at command\.py:\d+ test_support_bundle\.py:\d+", missing["why"])
    assert MARK not in missing["why"]


def test_its_size_is_bounded_and_the_newest_lines_are_kept() -> None:
    line = {"MESSAGE": "x" * 1000}
    lines = (*[line] * 5_000, {"MESSAGE": "the last"})
    files = files_of([Part("big", ["y" * 100] * 50_000), Part("journal", lines=lines)], Redactor(set()), {})
    assert list(files) == ["manifest.json", "journal.jsonl"]
    kept = files["journal.jsonl"]
    assert MAX_PART_BYTES - 2_000 < len(kept) <= MAX_PART_BYTES
    assert json.loads(kept.splitlines()[-1]) == {"MESSAGE": "the last"}
    big, journal = json.loads(files["manifest.json"])["missing"]
    assert (big["part"], "a part may have 2097152" in big["why"]) == ("big", True)
    why = f"all but the newest {len(kept.splitlines())} of 5001 lines"
    assert journal == {"part": "journal", "why": why}


def test_words_of_the_owners_own_are_hidden() -> None:
    raw = {
        "gateway": {"id": "mast-07", "set": {"api_key": f"{MARK}1"}},
        "forward": [{"steps": [{"set": {"token": f"{MARK}2"}}, {"where": {"password": f"{MARK}3"}}]}],
        "kafka": {"properties": {f"sasl.password={MARK}4": "", "x.secret.type": f"{MARK}5"}},
    }
    shown, hidden = shown_config(raw, position=False)
    assert MARK not in json.dumps(shown)
    assert {f"{MARK}1", f"{MARK}2", f"{MARK}3", f"{MARK}5"} <= hidden
