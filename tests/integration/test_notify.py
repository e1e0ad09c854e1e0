"""Alerts on their way to people: grouped, held in quiet hours, tried again, and sent once."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, time as time_of_day, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from aiosmtpd.controller import Controller
from confluent_kafka import Producer

from cloud.config import load
from cloud.kafka.readers import TopicReader
from cloud.lake.acknowledgements import Acknowledgement, acknowledge
from cloud.notify import (
    Message,
    Opens,
    Sender,
    Sent,
    Target,
    closes,
    digested,
    is_quiet,
    message,
    parse_alert,
    wanted,
)
from cloud.toml_problems import ConfigError
from cloud.wire.alert_records import AlertRecord
from cloud.wire.reading_records import ALERTS_TOPIC
from gateway.cli import main
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write
from tests.support.servers import eventually, unique_name

NOON, NIGHT = datetime(2026, 11, 24, 12, tzinfo=UTC), datetime(2026, 11, 24, 23, tzinfo=UTC)


def alert(name: str, gateway: str = "mast-07", severity: str = "warning", **more: Any) -> AlertRecord:
    given: dict[str, Any] = {
        "id": name, "rule": "hot", "severity": severity, "gateway": gateway, "state": "raised",
        "channel": "cabinet.temperature", "raised_at": "2026-11-24T11:58:03.000Z",
        "reported_at": "2026-11-24T11:58:03.000Z", "historical": False, "detail": "61.2 Cel above 60",
    }  # fmt: skip
    return AlertRecord(**given | more)


def cleared(name: str, **more: Any) -> AlertRecord:
    return alert(name, state="cleared", cleared_at="2026-11-24T12:03:00.000Z", **more)


def produce(servers: str, *values: bytes) -> None:
    """In as few batches as there can be: all of a batch comes to its readers at once."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1000})
    for value in values:
        producer.produce(ALERTS_TOPIC, value, b"mast/hot")
    assert producer.flush(20) == 0


@dataclass
class Hook:
    """A webhook of a chat: what it got, and whether it takes anything."""

    port: int = 0
    taken: list[str] = field(default_factory=list)
    refused: int = 0
    refuses: bool = False


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            refuses = found.refuses  # Once: the test changes it meanwhile.
            if refuses:
                found.refused += 1
            else:
                found.taken.append(f"{body['title']}\n{body['message']}")
            self.send_response(503 if refuses else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


Configure = Callable[..., Path]


@pytest.fixture
def configure(tmp_path: Path, provisioned: str) -> Configure:
    def write(**targets: str) -> Path:
        path = tmp_path / "cloud.toml"
        tables = "".join(f"[notify.{name}]\n{text}\n" for name, text in targets.items())
        path.write_text(f'[kafka]\nbootstrap_servers = "{provisioned}"\n{tables}')
        path.chmod(0o600)
        return path

    return write


@contextmanager
def notifying(config: Path) -> Iterator[subprocess.Popen[str]]:
    state = config.with_name("state") / "notify.db"
    command = [sys.executable, "-m", "gateway.cli", "notify", "--cloud", str(config), "--state", str(state)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], *texts: str) -> None:
    """Reads the log up to lines with these."""
    assert process.stderr is not None
    left = list(texts)
    for line in process.stderr:
        left = [each for each in left if each not in line]
        if not left:
            return
    pytest.fail(f"the log ended without {left}")


def test_a_group_is_one_message_sent_once_whatever_happens(
    configure: Configure, hook: Hook, provisioned: str
) -> None:
    gateway, chat = unique_name("mast"), unique_name("chat")
    config = configure(
        **{chat: f'url = "json://127.0.0.1:{hook.port}/"\ngroup = "1s"\ngateways = ["{gateway}"]'}
    )
    first, second = alert("a1", gateway), alert("a2", gateway, "critical")
    with notifying(config) as process:
        wait_for(process, "event=notify.reads")
        other = alert("a3", unique_name("other"))
        late = alert("a4", gateway, historical=True)
        produce(provisioned, b"{", *(each.to_json() for each in (other, first, late, second, first)))
        (text,) = eventually(lambda: list(hook.taken))
        each_line = [
            f"{gateway} cabinet.temperature, 2026-11-24 11:58 UTC", "61.2 Cel above 60",
            "Shade or vent the box.",
        ]  # fmt: skip
        assert text.splitlines() == [
            f"{gateway}: hot", "hot, warning", *each_line, "", "hot, critical", *each_line,
        ]  # fmt: skip
        wait_for(process, "event=notify.sent")
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    # What Kafka has twice, before the restart and after it, is not sent again.
    produce(provisioned, first.to_json(), cleared("a1", gateway=gateway).to_json())
    with notifying(config) as process:
        eventually(lambda: hook.taken[1:])
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [each.splitlines()[0] for each in hook.taken] == [f"{gateway}: hot", f"{gateway}: over: hot"]


def test_a_target_that_is_down_gets_its_alerts_later_and_holds_back_no_other(
    configure: Configure, hook: Hook, nowhere: str, provisioned: str
) -> None:
    gateway, up, down = unique_name("mast"), unique_name("up"), unique_name("down")
    more = f'group = "1s"\ngateways = ["{gateway}"]'
    hook.refuses = True
    config = configure(
        **{up: f'url = "json://127.0.0.1:{hook.port}/"\n{more}', down: f'url = "json://{nowhere}/"\n{more}'}
    )
    with notifying(config) as process:
        wait_for(process, f"reads target={up}", f"reads target={down}")
        produce(provisioned, alert("b1", gateway).to_json())
        eventually(lambda: hook.refused)
        hook.refuses = False
        assert len(eventually(lambda: list(hook.taken))) == 1
        wait_for(process, f"refused target={down}")


def test_quiet_hours_hold_all_but_the_urgent(configure: Configure, provisioned: str, tmp_path: Path) -> None:
    gateway, name = unique_name("mast"), unique_name("night")
    quiet = f'group = "1ms"\nquiet = "22:00-06:00"\ngateways = ["{gateway}"]'
    config = load(configure(**{name: f'url = "json://x/"\n{quiet}'}))
    now, messages = [NIGHT], list[Message]()

    def send(text: Message) -> bool:
        messages.append(text)
        return True

    target = Target(name, config.notify[name], send, Opens(lambda: sent, lambda: reader), lambda: now[0])
    with (
        closing(TopicReader(provisioned, {}, name, {ALERTS_TOPIC: "latest"})) as reader,
        closing(Sent(tmp_path / "sent.db", name)) as sent,
    ):
        produce(provisioned, alert("c1", gateway).to_json(), alert("c2", gateway, "critical").to_json())

        def sends(count: int) -> bool:
            now[0] += timedelta(seconds=1)
            target.turn(reader, sent)
            return len(messages) >= count

        eventually(lambda: sends(1))
        target.turn(reader, sent)
        now[0] = NOON + timedelta(days=1)
        eventually(lambda: sends(2))
        assert [each.body.splitlines()[0] for each in messages] == ["hot, critical", "hot, warning"]
        target.turn(reader, sent)

        def committed() -> bool:
            target.turn(reader, sent)
            return bool(reader.committed)

        eventually(committed)
        assert len(messages) == 2


def far_from(now: datetime) -> int:
    """An hour of the day that doesn't come while the test runs."""
    return (now.hour + 12) % 24


def test_a_digest_is_one_message_a_day_and_the_urgent_ones_do_not_wait(
    configure: Configure, provisioned: str, tmp_path: Path
) -> None:
    gateway, name = unique_name("mast"), unique_name("daily")
    # Records in Kafka have the time at which they came there.
    now, messages, there = [datetime.now(UTC)], list[Message](), ZoneInfo("Europe/Berlin")
    hour = far_from(now[0].astimezone(there))
    options = f'group = "1ms"\ndigest = "{hour:02}:00"\ntime_zone = "{there}"\ngateways = ["{gateway}"]'
    config = load(configure(**{name: f'url = "json://x/"\n{options}'}))
    due = digested(time_of_day(hour), now[0].astimezone(there))
    assert (due.hour, due.minute, now[0] <= due <= now[0] + timedelta(hours=25)) == (hour, 0, True)

    def send(text: Message) -> bool:
        messages.append(text)
        return True

    with closing(Sent(tmp_path / "sent.db", name)) as sent:

        def begin(reader: TopicReader) -> Target:
            opens = Opens(lambda: sent, lambda: reader)
            return Target(name, config.notify[name], send, opens, lambda: now[0])

        def sends(target: Target, reader: TopicReader, count: int) -> bool:
            target.turn(reader, sent)
            now[0] += timedelta(seconds=1)
            return len(messages) >= count

        with closing(TopicReader(provisioned, {}, name, {ALERTS_TOPIC: "latest"})) as reader:
            more = {"gateway": gateway, "rule": "silent"}
            usual = alert("d1", gateway), cleared("d1", gateway=gateway), alert("d2", **more)
            produce(provisioned, *(each.to_json() for each in (*usual, alert("d3", gateway, "critical"))))
            target = begin(reader)
            eventually(lambda: sends(target, reader, 1))
            assert [each.body.splitlines()[0] for each in messages] == ["hot, critical"]
            eventually(lambda: sends(target, reader, 1) and bool(reader.committed))
        # A program that stood still at that hour sends it when it is back, and once.
        now[0] = due + timedelta(hours=3)
        with closing(TopicReader(provisioned, {}, name, {ALERTS_TOPIC: "latest"})) as reader:
            target = begin(reader)
            eventually(lambda: sends(target, reader, 2))
            target.turn(reader, sent)
    assert len(messages) == 2
    assert messages[1].title == f"{gateway}: hot, over: hot, silent"
    heads = [part.splitlines()[0] for part in messages[1].body.split("\n\n")]
    assert heads == ["hot, warning", "over: hot, warning", "silent, warning"]


def test_who_acknowledges_for_a_time_has_it_in_the_digest_after(
    configure: Configure, provisioned: str, tmp_path: Path
) -> None:
    gateway, name = unique_name("mast"), unique_name("daily")
    now, messages = [datetime.now(UTC)], list[Message]()
    hour = far_from(now[0])
    more = f'group = "1ms"\ndigest = "{hour:02}:00"\nescalate_after = "1s"\ngateways = ["{gateway}"]'
    config = load(configure(**{name: f'url = "json://x/"\n{more}'}))
    due = digested(time_of_day(hour), now[0])
    until = due + timedelta(hours=2)
    seen = {"e1": Acknowledgement("e1", gateway, until, "", "olga", now[0])}

    def send(text: Message) -> bool:
        messages.append(text)
        return True

    with (
        closing(TopicReader(provisioned, {}, name, {ALERTS_TOPIC: "latest"})) as reader,
        closing(Sent(tmp_path / "sent.db", name)) as sent,
    ):
        opens = Opens(lambda: sent, lambda: reader, lambda at: seen if at < until else {})
        target = Target(name, config.notify[name], send, opens, lambda: now[0])
        produce(provisioned, *(alert(each, gateway, rule=each).to_json() for each in ("e1", "e2")))

        def sends(count: int) -> bool:
            target.turn(reader, sent)
            now[0] += timedelta(seconds=1)
            return len(messages) >= count

        eventually(lambda: (sends(0), len(reader.committed)), until=lambda each: each[1] > 0)
        now[0] = due + timedelta(minutes=1)
        eventually(lambda: sends(1))
        now[0] = until + timedelta(minutes=1)
        assert not any(sends(2) for _ in range(3))
        now[0] = due + timedelta(days=1, minutes=1)
        eventually(lambda: sends(2))
    assert [each.title for each in messages] == [f"{gateway}: e2", f"{gateway}: e1"]


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2026-11-24T05:59:59+00:00", "2026-11-24T07:00:00+01:00"),
        ("2026-11-24T06:00:00+00:00", "2026-11-24T07:00:00+01:00"),
        ("2026-11-24T06:00:01+00:00", "2026-11-25T07:00:00+01:00"),
        # The night of 25 October has 25 hours.
        ("2026-10-24T12:00:00+00:00", "2026-10-25T07:00:00+01:00"),
    ],
)
def test_a_digest_is_by_the_clock_on_the_wall(since: str, expected: str) -> None:
    begun = datetime.fromisoformat(since).astimezone(ZoneInfo("Europe/Berlin"))
    assert digested(time_of_day(7), begun).isoformat() == expected


def test_hours_and_choices(configure: Configure) -> None:
    choice = 'quiet = "22:00-06:00"\nseverities = ["critical"]\ncleared = false'
    target = load(configure(a=f'url = "json://x/"\n{choice}')).notify["a"]
    at = [is_quiet(target, datetime(2026, 11, 24, hour, tzinfo=UTC)) for hour in (21, 22, 5, 6)]
    assert at == [False, True, True, False]
    noon = load(configure(a='url = "json://x/"\nquiet = "12:00-13:00"')).notify["a"]
    at = [is_quiet(noon, datetime(2026, 11, 24, hour, tzinfo=UTC)) for hour in (11, 12, 13)]
    assert at == [False, True, False]
    chosen = (alert("a"), alert("a", severity="critical"), cleared("a", severity="critical"))
    assert [wanted(each, target) for each in chosen] == [False, True, False]
    assert parse_alert(alert("a").to_json()) == alert("a")
    assert parse_alert(b"\xff") is parse_alert(b"[]") is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('quiet = "22-6 o\'clock"', 'notify.a.quiet: must be hours such as "22:00-06:00"'),
        ('quiet = "22:00-22:00"', "notify.a.quiet: must end at another time than it begins"),
        ('digest = "seven"', 'notify.a.digest: must be a time of the day such as "07:00"'),
        ('time_zone = "Mars/Base"', "notify.a.time_zone: must be a time zone such as Europe/Berlin"),
        ('escalate_after = "2d"', "notify.a.escalate_after: "),
        ("colour = 1", "notify.a.colour: is not a known key"),
    ],
)
def test_what_is_wrong_in_the_config(configure: Configure, line: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.")):
        load(configure(a=f'url = {{ environment = "NO" }}\n{line}'))


class Mails:
    """What an SMTP server got."""

    def __init__(self) -> None:
        self.found: list[EmailMessage] = []
        self.at_s: list[float] = []
        """When each came (monotonic)."""

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's
        self.at_s.append(time.monotonic())
        self.found.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"


@contextmanager
def mail_server(port: int) -> Iterator[tuple[Mails, str]]:
    """A server, and the URL of a target there."""
    mails = Mails()
    controller = Controller(mails, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield mails, f"mailto://127.0.0.1:{port}/?from=mast@example.org&to=olga@example.org&mode=insecure"
    finally:
        controller.stop()


@pytest.fixture
def mails(free_port: int) -> Iterator[tuple[Mails, str]]:
    with mail_server(free_port) as server:
        yield server


@pytest.mark.filterwarnings("ignore:.imghdr. is deprecated:DeprecationWarning")  # apprise's
@pytest.mark.parametrize("form", ["", "&format=text", "&format=html"])
def test_a_mail_has_the_lines_of_its_alerts_and_their_letters(
    configure: Configure, mails: tuple[Mails, str], form: str
) -> None:
    server, url = mails
    text = message([alert("a"), alert("b", "mast-2", detail="<b>5</b> < 6 & 7 *8*, :smile: \\n http://x/")])
    assert len(text.body.splitlines()) == 6
    assert Sender("olga", load(configure(olga=f'url = "{url}{form}"')))(text)
    (mail,) = server.found
    assert mail["Subject"] == text.title
    parts = [part for part in mail.walk() if not part.is_multipart()]
    assert parts
    for part in parts:
        shown = part.get_content()
        if part.get_content_subtype() == "html":
            # What a reader sees: breaks are lines, marks are nothing, and the rest are letters.
            shown = re.sub("<[^>]+>", "", re.sub(r"\s*<br ?/?>\s*", "\n", shown))
            shown = html.unescape(shown)
        lines = [" ".join(line.split()) for line in shown.splitlines() if line.strip()]
        assert lines == text.body.splitlines()


@pytest.mark.filterwarnings("ignore:.imghdr. is deprecated:DeprecationWarning")  # apprise's
def test_a_test_message_by_mail(
    configure: Configure, nowhere: str, mails: tuple[Mails, str], capsys: pytest.CaptureFixture[str]
) -> None:
    server, url = mails
    assert main(["notify", "--cloud", str(configure(olga=f'url = "{url}"')), "--test"]) == 0
    assert capsys.readouterr().out == "sent  olga\n"
    assert server.found[0]["Subject"] == "fieldgate: a test"

    config = configure(olga=f'url = "json://{nowhere}/secret"', nobody='url = "nonsense"')
    assert main(["notify", "--cloud", str(config), "--test"]) == 1
    printed = capsys.readouterr().err
    assert "notify.nobody.url: no URL that apprise has a service for" in printed
    assert main(["notify", "--cloud", str(configure()), "--test"]) == 1
    assert "has no [notify.NAME]" in capsys.readouterr().err


def test_a_message_says_mast_and_cause_in_short_lines() -> None:
    two = message(
        [
            alert("a", detail="mast-07: 61.2 Cel"),
            cleared("b", gateway="mast-08", rule="stuck", detail="over: x"),
            cleared("c", rule="silent", detail="over: mast-07: silent cabinet.temperature"),
        ]
    )
    assert two.title == "2 masts: hot, over: stuck, over: silent"
    assert two.body.splitlines() == [
        "hot, warning", "mast-07 cabinet.temperature, 2026-11-24 11:58 UTC", "61.2 Cel",
        "Shade or vent the box.", "",
        "over: stuck, warning", "mast-08 cabinet.temperature, 2026-11-24 11:58 to 2026-11-24 12:03 UTC", "x",
        "", "over: silent, warning", "mast-07 cabinet.temperature, 2026-11-24 11:58 to 2026-11-24 12:03 UTC",
    ]  # fmt: skip
    many = message([alert(rule, rule=f"rule-{rule}") for rule in "abcde"])
    assert many.title == "mast-07: rule-a, rule-b, rule-c and 2 more"


def test_a_storm_is_waited_for_until_it_is_over() -> None:
    def after(*seconds: float) -> float:
        return (closes([NOON + timedelta(seconds=each) for each in seconds], 30) - NOON).total_seconds()

    assert after(0, 5, 29) == 30
    assert after(*range(20)) == 49
    assert after(*range(290)) == 300


def silent(number: int, **more: Any) -> AlertRecord:
    gateway = f"mast-{number:03d}"
    return alert(f"s{number}", gateway, rule="silent", channel=None, detail=f"{gateway}: no news", **more)


def test_a_thousand_masts_silent_at_once_are_one_mail_and_their_end_one_more(
    configure: Configure, mails: tuple[Mails, str], provisioned: str
) -> None:
    server, url = mails
    config = configure(
        **{unique_name("olga"): f'url = "{url}"\ngroup = "2s"\ngateways = ["mast-???", "mast-1000"]'}
    )
    over = {"state": "cleared", "cleared_at": "2026-11-24T12:58:00.000Z"}
    with notifying(config) as process:
        wait_for(process, "event=notify.reads")
        produce(provisioned, *(silent(number).to_json() for number in range(1, 1001)))
        wait_for(process, "event=notify.sent")
        produce(provisioned, *(silent(number, **over).to_json() for number in range(1, 1001)))
        wait_for(process, "alerts=1000")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [(mail["Subject"], mail.get_content_type()) for mail in server.found] == [
        ("1,000 masts: silent", "text/plain"), ("1,000 masts: over: silent", "text/plain"),
    ]  # fmt: skip
    names = ", ".join(f"mast-{number:03d}" for number in range(1, 11))
    assert server.found[0].get_content().splitlines() == [
        f"silent, warning: 1,000 masts ({names}, …)",
        "1,000 alerts, 2026-11-24 11:58 to 2026-11-24 11:58 UTC",
        "The first: mast-001, 2026-11-24 11:58 UTC",
        "no news",
    ]


def test_it_escalates_what_is_open_and_nobody_has_acknowledged_after_a_restart_too(
    configure: Configure, mails: tuple[Mails, str], provisioned: str, tmp_path: Path
) -> None:
    server, url = mails
    names = [unique_name("mast") for _ in "abcd"]
    name = unique_name("boss")
    more = f'group = "1s"\nescalate_after = "20s"\ngateways = {json.dumps(names)}'
    config = configure(**{name: f'url = "{url}"\n{more}'})
    config.write_text(f'{config.read_text()}[lake]\npath = "lake"\n')
    rows = {"id": names, "gateway": names, "historical": [False] * 4}
    write(tmp_path / "lake", schemas.ALERTS, rows)
    with notifying(config) as process:
        wait_for(process, "event=notify.reads")
        begun = time.monotonic()
        produce(provisioned, *(alert(each, each).to_json() for each in names))
        reader = reader_of(tmp_path / "lake")
        acknowledge(reader, "olga", names[:1])
        acknowledge(reader, "olga", names[1:2], lasts="40s")
        # Half of the time is over when it is killed; what it then reads again is not raised anew.
        eventually(lambda: time.monotonic() - begun > 10, 20)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    assert server.found == []
    with notifying(config) as process:
        wait_for(process, "event=notify.reads")
        again = time.monotonic()
        produce(provisioned, cleared(names[2], gateway=names[2]).to_json())
        wait_for(process, "event=notify.sent")
        assert time.monotonic() > begun + 19
        # Counted from the second start, it would not be due yet.
        assert time.monotonic() < again + 20
        assert [mail["Subject"] for mail in server.found] == [f"{names[3]}: hot"]
        # The one that was acknowledged for a time comes when that is over; the other two never do.
        wait_for(process, "event=notify.sent")
        produce(provisioned, *(cleared(each, gateway=each).to_json() for each in names))
        wait_for(process, "event=notify.sent")
    assert [mail["Subject"] for mail in server.found] == [
        f"{names[3]}: hot", f"{names[1]}: hot", "2 masts: over: hot",
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.imghdr. is deprecated:DeprecationWarning")  # apprise's
def test_escalation_needs_a_lake(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    config = configure(boss='url = "json://127.0.0.1/"\nescalate_after = "1h"')
    assert main(["notify", "--cloud", str(config), "--state", str(config.with_name("sent.db"))]) == 1
    assert "notify.boss.escalate_after needs [lake] path" in capsys.readouterr().err
