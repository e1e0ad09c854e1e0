"""The command line: what it passes on, prints and returns."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import msgspec
import pytest

from cloud.command_line import kafka_property, override
from gateway import cli
from gateway.status.status import Finding, Status
from tests.support.status import channel, status

STATUS: Final = status(
    uplink="spilling",
    run_proves_itself=True,
    channels={
        "cup-50m-a.wind_speed": channel(),
        "dht.temperature": channel(
            time="2026-11-21T07:34:58.000Z", value=None, unit="Cel", quality=9, reasons=("CHECKSUM",)
        ),
    },
    findings=(Finding("kafka", "error", "it gives no reason", "name, port, firewall"),),
)


def fieldgate(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "gateway.cli", *arguments),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )


class _Answer(BaseHTTPRequestHandler):
    """Answers like the daemon's status page."""

    def do_GET(self) -> None:
        found = self.path == "/api/status"
        self.send_response(200 if found else 404)
        self.end_headers()
        if found:
            self.wfile.write(msgspec.json.encode(STATUS))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def daemon_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_help_is_quick_and_names_every_command() -> None:
    times = [1.0]
    while min(times) >= 0.3 and len(times) <= 10:
        # Of the processor: what else this machine does is not our affair, though it makes its caches cold.
        begun = os.times()
        done = fieldgate("--help")
        ended = os.times()
        times.append(
            ended.children_user + ended.children_system - begun.children_user - begun.children_system
        )
        assert done.returncode == 0
        for command in ("run", "check", "status", "provision", "jobs", "query", "demo"):
            assert re.search(rf"^    {command}\s", done.stdout, re.MULTILINE)
    assert min(times) < 0.3


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, gateway.cli\n"
        "try:\n    gateway.cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'rich', 'confluent_kafka', 'paho', 'pydantic', 'duckdb'} & set(sys.modules)))\n"
    )
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_topics_need_an_address_or_a_config(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(("provision", "topics")) == 2
    assert capsys.readouterr().err == "fieldgate: one of --bootstrap-servers, --cloud and -c is required\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("runn",), "invalid choice: 'runn'"),
        (("run", "--seconds", "0"), "argument --seconds: '0' is not a number above 0"),
        (("run", "--seconds", "nan"), "argument --seconds: 'nan' is not a number above 0"),
        (("run", "--set", "mqtt.port"), "argument --set: 'mqtt.port' is not KEY=VALUE"),
        (
            ("provision", "topics", "--bootstrap-servers", "x", "--partitions", "0"),
            "argument --partitions: '0' is not a whole number above 0",
        ),
        (("demo", "--interval", "sometimes"), "argument --interval: 'sometimes'"),
        (("demo", "--jobs", "ingest,mist,statistics"), "no job of the demo is named 'mist': ingest,"),
        (("demo", "--jobs", "ingest,mast"), "argument --jobs: ingest and statistics are needed"),
    ],
)
def test_wrong_usage_ends_with_2(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("mqtt.port=1884", 1884),
        ("outbox.commit_interval_s=0.5", 0.5),
        ("sensor.0.enabled=true", True),
        ("mqtt.host=127.0.0.1", "127.0.0.1"),
        ("status.listen=127.0.0.1:8321", "127.0.0.1:8321"),
        ("outbox.path=/var/lib/fieldgate/outbox.db", "/var/lib/fieldgate/outbox.db"),
        ('kafka.topic="1"', "1"),
        ("kafka.bootstrap_servers=a:1,b:2", "a:1,b:2"),
        ("kafka.properties.x=a=b", "a=b"),
        ("gateway.id=", ""),
        ("gateway.id=1\nevil = 2", "1\nevil = 2"),
    ],
)
def test_overrides_are_toml_values_or_strings(given: str, value: object) -> None:
    parsed = cli.parser_of("run").parse_args(["--set", given])
    assert parsed.overrides == [(given.split("=")[0], value)]


def test_jobs_become_the_spark_program(tmp_path: Path) -> None:
    package = tmp_path / "spark_jobs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import os, sys\nprint(os.getpid(), sys.argv[1:])\nsys.exit(7)\n")
    with subprocess.Popen(
        (sys.executable, "-m", "gateway.cli", "jobs", "run", "ingest", "--lake", "/x"),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    ) as process:
        printed, _ = process.communicate(timeout=60)
    assert printed == f"{process.pid} ['run', 'ingest', '--lake', '/x']\n"
    assert process.returncode == 7


def test_an_unreachable_kafka_ends_with_1(nowhere: str) -> None:
    done = fieldgate("provision", "topics", "--bootstrap-servers", nowhere, "--timeout", "0.5")
    assert done.returncode == 1
    assert done.stderr.startswith(f"fieldgate: no answer from Kafka at {nowhere}: ")
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_quietly_with_130() -> None:
    # Started in the background, the tests would hand on that SIGINT is ignored.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        servers = f"127.0.0.1:{deaf.getsockname()[1]}"
        deaf.settimeout(60)
        with subprocess.Popen(
            (sys.executable, "-m", "gateway.cli", "provision", "topics", "--bootstrap-servers", servers),
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heeds,
        ) as process:
            waiting, _ = deaf.accept()
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=60)
            waiting.close()
    assert (process.returncode, printed) == (130, "")


def test_status_shows_every_channel(
    tmp_path: Path, daemon_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    config = tmp_path / "gateway.toml"
    config.write_text(f'[status]\nlisten = "0.0.0.0:{daemon_port}"\n')
    assert cli.main(["status", "-c", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "mast-07 run 9f3c21ab04de (proves itself): sampling, uplink spilling",
        "sampled 1234  confirmed 1200  in flight 5",
        "error   kafka     it gives no reason",
        "                  name, port, firewall",
    ]
    rows = {line.split()[0]: line.split() for line in lines[4:]}
    assert rows["cup-50m-a.wind_speed"][1:5] == ["7.235", "m/s", "good", "07:35:00"]
    assert rows["dht.temperature"][1:5] == ["–", "Cel", "missing", "07:34:58"]
    assert rows["dht.temperature"][-1] == "CHECKSUM"


def test_status_json_is_the_daemons_answer(
    tmp_path: Path, daemon_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f'[status]\nlisten = "127.0.0.1:{daemon_port}"\n')
    assert cli.main(["status", "--json", "-c", str(config)]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=Status) == STATUS


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[status]\nlisten = "NOWHERE"\n', "no daemon answers at http://NOWHERE/api/status: "),
        ('[status]\nlisten = "somewhere"\n', "status.listen 'somewhere' is not HOST"),
        ("[status]\nlisten = 8321\n", "gateway.toml: status.listen must be a string"),
        ("[status\n", "gateway.toml: Expected ']'"),
        (None, "gateway.toml: there is no such file"),
    ],
)
def test_status_gives_the_reason_why_it_cant(
    tmp_path: Path, nowhere: str, text: str | None, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "gateway.toml"
    if text is not None:
        config.write_text(text.replace("NOWHERE", nowhere))
    assert cli.main(["status", "-c", str(config)]) == 1
    printed = capsys.readouterr()
    assert complaint.replace("NOWHERE", nowhere) in printed.err
    assert printed.out == ""


def test_a_secret_comes_from_a_file_not_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "password").write_text("sesame\n")
    assert kafka_property(f"sasl.password=@{tmp_path / 'password'}") == ("sasl.password", "sesame")
    assert kafka_property("security.protocol=SSL") == ("security.protocol", "SSL")
    assert override('mqtt.password={ file = "p" }') == ("mqtt.password", {"file": "p"})
    for words, remedy in (
        (["watch", "--property", "sasl.password=sesame"], "write sasl.password=@FILE"),
        (["watch", "--property", "sasl.password=@/no/such"], "sasl.password: /no/such can't be read"),
        (["run", "--set", "mqtt.password=sesame"], 'mqtt.password={ file = "…" }'),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2
        printed = capsys.readouterr().err
        assert remedy in printed
        assert "sesame" not in printed
