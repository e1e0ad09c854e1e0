"""What the pages print is tried: commands parse, configs are valid, blocks that can run here run as printed.

A comment before a block: ``<!-- not run: REASON -->``, ``<!-- run: until Ctrl-C -->`` (interrupted
once readings arrive), ``<!-- run: --full -->``. Without one a block runs and must exit with 0: page by page,
in order, in a directory like the project's, with a Mosquitto of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Final

import msgspec
import pytest

from cloud.wire.alert_records import AlertRecord
from cloud.wire.channel_records import parse_channel
from cloud.wire.reading_records import parse_reading
from cloud.wire.site_records import parse_site
from cloud.wire.status_records import parse_status
from gateway.cli import COMMANDS, parser_of
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.config import check
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.settings import parse_command, parse_run
from tests.support.mast import records
from tests.support.servers import eventually

PROJECT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{p.name}" for p in sorted((PROJECT / "docs").glob("*.md"))),
]
TOUR: Final = [f"docs/{name}.md" for name in ("install", "operate-mast", "operate-cluster", "simulate")]
"""Pages whose shell blocks build on each other. The analysts' pages: tests/unit/cloud/lake/test_pages.py."""
_BLOCK: Final = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<tag>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_KAFKA: Final = "127.0.0.1:9092"


@dataclass(frozen=True)
class Block:
    """A fenced block, and how the comment before it wants it tried."""

    place: str
    tag: str
    text: str
    mark: str


def blocks(page: str, tag: str) -> list[Block]:
    """The page's blocks of one language, in order."""
    text = (PROJECT / page).read_text(encoding="utf-8")
    return [
        Block(f"{page}:{text.count(chr(10), 0, m.start()) + 1}", tag, m["text"], m["mark"] or "")
        for m in _BLOCK.finditer(text)
        if m["tag"] == tag
    ]


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Each ``fieldgate …`` of the pages, without its name: place and arguments."""
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.text.replace("\\\n", " ").splitlines():
                tokens = shlex.shlex(line, posix=True, punctuation_chars="&|")
                tokens.whitespace_split = True
                for joint, group in groupby(tokens, key=lambda token: token in ("&&", "|")):
                    words = list(dropwhile(lambda word: word == "sudo" or "=" in word, group))
                    if not joint and words and Path(words[0]).name == "fieldgate":
                        yield block.place, words[1:]


@pytest.mark.parametrize(("place", "words"), list(command_lines()))
def test_a_command_of_a_page_is_one(
    place: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 2 if " ".join(words[:2]) in COMMANDS else 1
    name, arguments = " ".join(words[:first]), words[first:]
    if name == "--version":
        return
    assert name in COMMANDS, place
    if name != "jobs":
        parser_of(name).parse_args(arguments)
        return
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROJECT / "spark_jobs" / "alerting" / "default_rules.toml", "rules.toml")
    (streams,) = blocks("docs/connect.md", "toml")
    Path("cloud.toml").write_text(streams.text, encoding="utf-8")
    try:
        parse_run(arguments[1:]) if arguments[0] == "run" else parse_command(arguments[0], arguments[1:])
    except SettingsError as error:
        pytest.fail(f"{place}: {error}")


@pytest.mark.parametrize(
    "block",
    [b for page in PAGES for b in blocks(page, "toml") if "[[rule]]" not in b.text],
    ids=lambda b: b.place,
)
def test_a_config_of_a_page_is_valid(block: Block, tmp_path: Path) -> None:
    if block.mark.startswith("not run: "):
        pytest.skip(block.mark)
    path = tmp_path / "gateway.toml"
    path.write_text('[gateway]\nid = "mast-07"\n' + block.text, encoding="utf-8")
    errors = [str(problem) for problem in check(path)[1] if problem.severity == "error"]
    # A part of a config may name sensors that another part has.
    assert [error for error in errors if "there is no sensor" not in error] == [], block.place


@pytest.mark.parametrize(
    "block", [b for page in PAGES for b in blocks(page, "json")], ids=lambda block: block.place
)
def test_a_record_of_a_page_is_one(block: Block) -> None:
    value = block.text.encode()
    if '"rule"' in block.text:
        assert msgspec.json.decode(value, type=AlertRecord).v == 1
    elif '"quality"' in block.text:
        assert parse_reading(value).extra is None
    elif '"cal"' in block.text:
        assert parse_channel(value).extra is None
    elif '"utc_offset_min"' in block.text:
        assert parse_site(value).extra is None
    else:
        assert parse_status(value).extra is None


def test_what_is_not_run_has_a_reason() -> None:
    marks = {b.mark for page in PAGES for tag in ("sh", "toml") for b in blocks(page, tag)} - {""}
    assert {
        mark for mark in marks if not re.fullmatch(r"not run: .{6,}|run: (until Ctrl-C|--full)", mark)
    } == set()


def test_what_has_no_mark_is_run() -> None:
    rest = [block for page in PAGES if page not in TOUR for block in blocks(page, "sh") if not block.mark]
    assert {block.place for block in rest if not re.match(r"\S*fieldgate query ", block.text)} == set()
    # Without a language a block is output; a command in it would be run nowhere.
    pages = (_BLOCK.sub("", PROJECT.joinpath(page).read_text(encoding="utf-8")) for page in PAGES)
    bare = [text for page in pages for text in re.findall(r"^```\n(.*?)^```$", page, re.M | re.S)]
    assert [text for text in bare if re.match(r"(sudo |\.venv/bin/)?fieldgate ", text)] == []


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, provisioned: str) -> Iterator[Path]:
    """A directory like the project's, whose mast uses the tests' brokers."""
    place = tmp_path_factory.mktemp("pages")
    for name in ("spark_jobs", ".jars"):
        (place / name).symlink_to(PROJECT / name)
    (place / ".venv").symlink_to(
        Path(os.environ["VIRTUAL_ENV"]) if "VIRTUAL_ENV" in os.environ else PROJECT / ".venv"
    )
    shutil.copytree(PROJECT / "docs" / "examples", place / "docs" / "examples")
    with LocalMosquitto(place / "mosquitto") as mosquitto:
        config = place / "docs" / "examples" / "simulated.toml"
        config.write_text(
            config.read_text()
            + f'[mqtt]\nport = {mosquitto.port}\n[kafka]\nbootstrap_servers = "{provisioned}"\n'
            + '[status]\nlisten = "127.0.0.1:0"\n'
        )
        cloud = place / "docs" / "examples" / "cloud.toml"
        without_login = re.sub(r"(?m)^(security|sasl|ssl)\..*\n", "", cloud.read_text())
        for stated, own in (("kafka.example.org:9093", provisioned), ("/srv/fieldgate/", "")):
            without_login = without_login.replace(stated, own)
        cloud.write_text(without_login)
        yield place


@pytest.mark.system
@pytest.mark.timeout(3000)
def test_blocks_run_as_printed(project: Path, provisioned: str, full: bool) -> None:
    def taken() -> int:
        """How many of the documented mast's readings of wind Kafka has."""
        keys = (each.key() or b"" for each in records(provisioned, ["mqtt.wind_speed"]))
        return sum(key.startswith(b"demo-mast/") for key in keys)

    tried = 0
    for block in (block for page in TOUR for block in blocks(page, "sh")):
        if block.mark.startswith("not run: ") or (block.mark == "run: --full" and not full):
            continue
        text = block.text.replace(_KAFKA, provisioned)
        with subprocess.Popen(
            ["bash", "-ec", text], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(PROJECT)}, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                if block.mark == "run: until Ctrl-C":
                    eventually(taken, until=lambda count: count >= 12)
                    os.killpg(process.pid, signal.SIGINT)
                output, _ = process.communicate(timeout=900)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert process.returncode == 0, f"{block.place}\n{text}\n{output}"
        tried += 1
    assert tried >= 6
