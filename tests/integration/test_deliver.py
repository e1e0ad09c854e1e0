"""Reports and data on their way to people: once each, whatever is killed or away; corrected once."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from deltalake import DeltaTable

from cloud.config import load
from cloud.deliver.command import deliver
from cloud.errors import CloudError
from cloud.toml_problems import ConfigError
from gateway.cli import parser_of
from spark_jobs.platform import schemas
from tests.support.certificates import self_signed
from tests.support.fleet_lake import write, write_fleet
from tests.support.s3 import Moto
from tests.support.servers import eventually, fieldgate
from tests.support.sshd import SSHD, Sshd

DAY: Final = timedelta(days=1)
END: Final = datetime(2026, 11, 21, tzinfo=UTC)
"""The lake's end. The site is 5:45 ahead: its 20 November ends at 18:15 UTC."""


def make_lake(root: Path, masts: int, days: int, end: datetime) -> Path:
    write_fleet(root, masts, days, end=end)
    return root


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lake(tmp_path_factory.mktemp("deliver") / "lake", 2, 4, END)


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    """A test's own, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "lake"))


class Mails:
    """What an SMTP server got; ``says`` what it answers to a recipient, or to a whole mail (``data``)."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.found: list[EmailMessage] = []
        self.raw: list[bytes] = []
        self.says: dict[str, str] = {}

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's
        self, _server: object, _session: object, envelope: Any, address: str, _options: object
    ) -> str:
        if address in self.says:
            return self.says[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: object, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's
        if "data" in self.says:
            return self.says["data"]
        self.raw.append(envelope.content)
        self.found.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"

    def toml(self, to: Sequence[str] = ("olga@example.org",)) -> str:
        """The keys of ``[deliver.NAME.mail]``."""
        server = f"smtp://127.0.0.1:{self.port}"
        return f'server = "{server}"\nfrom = "masts@example.org"\nto = {json.dumps(list(to))}\n'


@pytest.fixture
def mails(free_port: int) -> Iterator[Mails]:
    mails = Mails(free_port)
    controller = Controller(mails, hostname="127.0.0.1", port=free_port, data_size_limit=50_000_000)
    controller.start()
    yield mails
    controller.stop()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip("needs Debian's openssh-server")
    (tmp_path / "ssh").mkdir()
    with Sshd(tmp_path / "ssh") as server:
        yield server


Configure = Callable[..., Path]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    def write(lake: Path, **deliveries: str) -> Path:
        path = tmp_path / "cloud.toml"
        tables = "".join(f"[deliver.{name}]\n{text}\n" for name, text in deliveries.items())
        path.write_text(f'[lake]\npath = "{lake}"\n{tables}')
        path.chmod(0o600)
        return path

    return write


def daily(formats: str, place: str, *more: str) -> str:
    """A delivery of days that are over; ``place`` is a key or a table."""
    keys = [f"formats = {json.dumps(formats.split(','))}", 'period = "day"', *more]
    return "\n".join([place, *keys] if place.startswith("folder") else [*keys, place])


def folder(path: Path) -> str:
    path.mkdir(exist_ok=True)
    return f'folder = "{path}"'


def at(config: Path, now: datetime, *words: str) -> int:
    """The command at a moment."""
    state = config.with_name("state") / "deliver.db"
    parser = parser_of("deliver")
    return deliver(parser.parse_args(["--cloud", str(config), "--state", str(state), *words]), now)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def change(lake: Path, mast: str, day: str, when: str = "true") -> None:
    """Late data: the day's intervals are closed anew."""
    DeltaTable(str(lake / "statistics")).update(
        updates={"version": "version + 1", "avg": "avg + 1"},
        predicate=f"gateway = '{mast}' AND date = '{day}' AND channel = 'dht.temperature' AND {when}",
    )


_FORKS: Final = """
import os, sys, duckdb, pandas, pyarrow.dataset, cloud.deliver.command
from gateway.cli import main
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        os._exit(main(sys.argv[1:]))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""The command again and again, without the second in which a process of its own would import it."""


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_period_once_though_killed_at_any_moment(
    configure: Configure, tmp_path: Path, sshd: Sshd, mails: Mails, full: bool
) -> None:
    """The program as it is installed, with a real SSH server, a mail server and a folder."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    lake = make_lake(tmp_path / "killed", 2, 8, today + DAY)
    # At the sites it is noon: no day ends while the test runs.
    noon = (12 - datetime.now(UTC).hour) * 60
    DeltaTable(str(lake / "sites")).update(updates={"utc_offset_min": str(noon)})
    since = f"since = {today - 6 * DAY:%Y-%m-%d}"
    more = (since, 'wait = "0s"')
    out = tmp_path / "out"
    config = configure(
        lake,
        out=daily("csv", folder(out), *more),
        ssh=daily("csv", f"[deliver.ssh.sftp]\n{sshd.toml}", *more),
        olga=daily("csv", f"[deliver.olga.mail]\n{mails.toml()}", *more),
    )
    state = tmp_path / "killed.db"
    words = ["deliver", "--cloud", str(config), "--state", str(state)]
    due = fieldgate(*words, "--dry-run").stdout.splitlines()
    wanted = {tuple(line.split()[1:3]) for line in due}
    assert len(due) == 3 * len(wanted) >= 36

    def there() -> int:
        return len(names(out)) + len(names(sshd.inbox)) + len(mails.found)

    chance, wanted_kills, kills = random.Random(7), 20 if full else 3, 0
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
        ended = ""
        # One that ends with 0 has sent all.
        while kills < wanted_kills and ended != "0\n":
            forks.stdin.write("\n")
            forks.stdin.flush()
            process, before = int(forks.stdout.readline()), there()
            eventually(lambda: there() > before or not is_running(process), poll_s=0.01)  # noqa: B023
            moment = time.monotonic() + chance.uniform(0, 0.05)
            eventually(lambda: time.monotonic() >= moment or not is_running(process), poll_s=0.001)  # noqa: B023
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            # 1: an sftp that outlived the kill before held the lock.
            ended = forks.stdout.readline()
            kills += ended == "-9\n"
    assert kills == wanted_kills
    eventually(lambda: fieldgate(*words), until=lambda done: done.returncode == 0)

    stems = {f"{mast}-{day}" for mast, day in wanted}
    files = sorted(f"{stem}{end}" for stem in stems for end in (".csv", ".columns.csv"))
    # Nor is anything half done left.
    assert names(out) == names(sshd.inbox) == files
    for path in (*out.glob("*[0-9].csv"), *sshd.inbox.glob("*[0-9].csv")):
        assert len(path.read_text().splitlines()) == 1 + 144, path
    sent = Counter(mail["Message-ID"] for mail in mails.found)
    assert len(sent) == len(wanted)
    assert set(sent.values()) <= {1, 2}
    attached = {part.get_filename() for mail in mails.found for part in mail.iter_attachments()}
    assert attached == set(names(sshd.inbox))
    # And nothing is due any more.
    assert fieldgate(*words).stderr == ""


NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
"""Before the site's 20 November is over."""


def test_a_period_is_sent_after_its_wait_and_once(configure: Configure, lake: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = configure(lake, out=daily("csv,toa5,parquet,iea43,html", folder(out)))
    # The newest that is over, and none before.
    assert at(config, NOON) == 0
    ends = (".csv", ".columns.csv", ".dat", ".parquet", ".json", ".html")
    assert names(out) == sorted(f"mast-0{n}-2026-11-19{end}" for n in (1, 2) for end in ends)
    page = (out / "mast-01-2026-11-19.html").read_text()
    assert "Ridge 1, 19 November 2026" in page
    # The site's day, in its time, whole.
    rows = list(csv.reader(StringIO((out / "mast-01-2026-11-19.csv").read_text())))
    assert [rows[1][0][:16], rows[-1][0][:16], len(rows)] == ["2026-11-19 00:05", "2026-11-19 23:55", 1 + 144]
    assert pq.read_table(out / "mast-01-2026-11-19.parquet").num_rows == 144
    before = {each: each.stat().st_mtime_ns for each in out.iterdir()}
    assert at(config, NOON + timedelta(hours=1)) == 0
    # 20 November ends at 18:15 UTC.
    assert at(config, datetime(2026, 11, 21, 0, 14, tzinfo=UTC)) == 0
    assert {each: each.stat().st_mtime_ns for each in out.iterdir()} == before
    assert at(config, datetime(2026, 11, 21, 0, 15, tzinfo=UTC)) == 0
    assert len(names(out)) == 2 * len(before)


@pytest.mark.parametrize(
    ("period", "stem", "rows"),
    [("week", "2026-W46", 144), ("month", "2026-10", 144), ("day", "2026-11-16", 144)],
)
def test_weeks_and_months_by_the_sites_time(
    configure: Configure, tmp_path: Path, period: str, stem: str, rows: int
) -> None:
    lake = make_lake(tmp_path / "weeks", 1, 3, datetime(2026, 11, 18, tzinfo=UTC))
    out, end = tmp_path / "out", {"week": 15, "month": 1, "day": 16}[period]
    make_lake(
        tmp_path / "weeks", 1, 2, datetime(2026, 11, end, 18, 20, tzinfo=UTC) - (period == "month") * DAY
    )
    keys = f'period = "{period}"\nformats = ["csv"]\nmasts = ["mast-*"]\n{folder(out)}'
    assert at(configure(lake, out=keys), datetime(2026, 11, 17, 12, tzinfo=UTC)) == 0
    assert names(out) == [f"mast-01-{stem}.columns.csv", f"mast-01-{stem}.csv"]
    assert len((out / f"mast-01-{stem}.csv").read_text().splitlines()) > rows


def test_late_data_are_one_correction_marked_as_such(
    configure: Configure, lake: Path, tmp_path: Path, mails: Mails
) -> None:
    out = tmp_path / "out"
    config = configure(
        lake,
        out=daily("csv", folder(out), 'masts = ["mast-01"]'),
        olga=daily("csv", f"[deliver.olga.mail]\n{mails.toml()}", 'masts = ["mast-01"]'),
    )
    assert at(config, NOON) == 0
    first = (out / "mast-01-2026-11-19.csv").read_bytes()
    # They trickle in for hours: a correction comes six hours after the last of them.
    for hour in range(1, 4):
        change(lake, "mast-01", "2026-11-19")
        assert at(config, NOON + timedelta(hours=hour)) == 0
    assert at(config, NOON + timedelta(hours=8, minutes=59)) == 0
    assert len(mails.found) == 1
    for _ in range(2):
        assert at(config, NOON + timedelta(hours=9)) == 0
    assert [mail["Subject"] for mail in mails.found] == [
        "Ridge 1, 19 November 2026", "Ridge 1, 19 November 2026, corrected",
    ]  # fmt: skip
    corrected = out / "mast-01-2026-11-19-corrected.csv"
    assert (out / "mast-01-2026-11-19.csv").read_bytes() == first != corrected.read_bytes()
    change(lake, "mast-01", "2026-11-19")
    for hour in (10, 16):
        assert at(config, NOON + timedelta(hours=hour)) == 0
    assert (out / "mast-01-2026-11-19-corrected-2.csv").exists()
    assert sum(mail["Subject"].endswith("corrected") for mail in mails.found) == 2
    # What retention takes out is no correction.
    statistics = DeltaTable(str(lake / "statistics"))
    statistics.delete("date = '2026-11-19' AND interval_start < '2026-11-19T06:00:00Z'")
    for hour in (17, 24):
        assert at(config, NOON + timedelta(hours=hour)) == 0
    assert not (out / "mast-01-2026-11-19-corrected-3.csv").exists()
    body = mails.found[1].get_body()
    assert body is not None
    assert "Corrected: statistics of this period have changed since it was sent." in body.get_content()


def test_a_mast_that_moves_to_another_offset_corrects_nothing(
    configure: Configure, lake: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    config = configure(lake, out=daily("csv", folder(out), "since = 2026-11-17", 'masts = ["mast-01"]'))
    assert at(config, NOON) == 0
    before = names(out)
    moved = {"gateway": ["mast-01"], "valid_from": [NOON + 1.25 * DAY], "utc_offset_min": [-120]}
    write(lake, schemas.SITES, moved)
    # The lake begins within 17 November, which by the new offset has more of it. The 20th is the old site's.
    for hour in range(0, 60, 12):
        assert at(config, NOON + timedelta(hours=24 + hour)) == 0
    days = {name.removeprefix("mast-01-").partition(".")[0] for name in set(names(out)) - set(before)}
    assert days == {"2026-11-20"}
    assert len((out / "mast-01-2026-11-20.csv").read_text().splitlines()) == 145


def test_a_fleets_page_is_sent_once_for_all_and_corrected(
    configure: Configure, lake: Path, tmp_path: Path, mails: Mails
) -> None:
    out, what = tmp_path / "out", 'what = "fleet"'
    config = configure(
        lake, all=daily("html", folder(out), what), two=daily("pdf", folder(out), what, 'masts = ["*-02"]'),
        olga=daily("html", f"[deliver.olga.mail]\n{mails.toml()}", what),
    )  # fmt: skip
    for _ in range(2):
        assert at(config, NOON) == 0
    assert names(out) == ["fleet-2026-11-19.html", "fleet-2026-11-19.pdf"]
    page = (out / "fleet-2026-11-19.html").read_text()
    assert "Fleet, 19 November 2026" in page
    assert {"<td>mast-01</td><td>Ridge 1</td>", "<td>mast-02</td><td>Pass 1</td>"} <= set(
        re.findall("<td>mast-..</td><td>[A-Z].*?</td>", page)
    )
    (mail,) = mails.found
    assert mail["Subject"] == "Fleet, 19 November 2026"
    body = mail.get_body()
    assert body is not None
    assert re.search(r"Recovery: \d+\.\d % of the intervals, mean of 2 masts\s", body.get_content())
    change(lake, "mast-01", "2026-11-19")
    for hour in (1, 7):
        assert at(config, NOON + timedelta(hours=hour)) == 0
    # Only the one that has the mast.
    assert names(out) == ["fleet-2026-11-19-corrected.html", "fleet-2026-11-19.html", "fleet-2026-11-19.pdf"]
    assert [each["Subject"] for each in mails.found] == [mail["Subject"], f"{mail['Subject']}, corrected"]
    # By the other site's time it was the 18th.
    change(lake, "mast-01", "2026-11-18", "interval_start = '2026-11-18T19:00:00Z'")
    for hour in (8, 14):
        assert at(config, NOON + timedelta(hours=hour)) == 0
    assert "fleet-2026-11-19-corrected-2.html" in names(out)


def test_what_was_sent_long_ago_is_forgotten_and_not_sent_again(
    configure: Configure, lake: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    config = configure(lake, out=daily("csv", folder(out), "since = 2026-11-17", 'masts = ["mast-01"]'))
    state = config.with_name("state") / "deliver.db"

    def noted() -> list[str]:
        with closing(sqlite3.connect(state)) as database:
            return [row[0] for row in database.execute("SELECT period FROM sendings ORDER BY period")]

    assert at(config, NOON + DAY) == 0
    sent = [f"2026-11-{day}" for day in range(17, 21)]
    assert noted() == sent
    for each in out.iterdir():
        each.unlink()
    for days, left in ((91, 4), (93, 2), (120, 0)):
        assert at(config, NOON + days * DAY) == 0
        assert [each for each in noted() if each in sent] == sent[len(sent) - left :]
    assert names(out) == ["mast-01-2026-11-21.columns.csv", "mast-01-2026-11-21.csv"]


def test_a_target_that_is_down_for_a_day_gets_all_of_it_later(
    configure: Configure, lake: Path, tmp_path: Path, sshd: Sshd, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    ssh = daily("csv", f"[deliver.ssh.sftp]\n{sshd.toml}", "since = 2026-11-17")
    config = configure(lake, ssh=ssh, out=daily("csv", folder(out), "since = 2026-11-17"))
    sshd.stop()
    codes, tries = [], 0
    for hour in range(24):
        caplog.clear()
        codes.append(at(config, NOON + timedelta(hours=hour)))
        tries += "event=deliver.unreachable target=ssh" in caplog.text
        assert ("deliver.waits target=ssh" in caplog.text) != ("deliver.unreachable" in caplog.text)
    assert set(codes) == {1}
    # After 25 and 50 minutes, then 1:40, 3:20, 4:00 …: at the next hour each.
    assert tries == 8
    assert "Connection refused" in caplog.text or "waits" in caplog.text
    sent = names(out)
    assert len(sent) == 2 * 2 * 4
    assert names(sshd.inbox) == []
    sshd.start()
    # Who names it needn't wait.
    assert at(config, NOON + timedelta(hours=24, minutes=1), "ssh") == 0
    assert names(sshd.inbox) == sent
    assert at(config, NOON + timedelta(hours=25)) == 0


def test_a_mail_says_what_is_missing(configure: Configure, tmp_path: Path, mails: Mails) -> None:
    lake = make_lake(tmp_path / "gap", 3, 3, datetime(2026, 11, 20, tzinfo=UTC))
    config = configure(lake, olga=daily("csv", f"[deliver.olga.mail]\n{mails.toml()}"))
    # Mast 3 has an outage in the last day; on 20 November there is an hour of data, and none on the 21st.
    for day in (19, 20, 21, 22):
        assert at(config, datetime(2026, 11, day, 12, tzinfo=UTC) + DAY / 2) == 0
    by_subject = {mail["Subject"]: mail for mail in mails.found}
    assert sorted(by_subject) == sorted(
        f"{name}, {day} November 2026" for name in ("Ridge 1", "Pass 1", "Plateau 1") for day in (19, 20, 21)
    )
    body = by_subject["Plateau 1, 19 November 2026"].get_body()
    assert body is not None
    lines = body.get_content().splitlines()
    assert lines[0] == "mast-03: 19 November 2026, UTC+05:45"
    assert lines[1].startswith("Recovery: ")
    assert float(lines[1].split()[1]) < 100
    assert any(line.startswith("  cup-50m-a.wind_speed: ") for line in lines)
    assert lines[-1] == "mast-03-2026-11-19.columns.csv"
    nothing = by_subject["Ridge 1, 21 November 2026"]
    body = nothing.get_body()
    assert body is not None
    assert "The lake has no statistics of this mast in this period." in body.get_content()
    assert list(nothing.iter_attachments()) == []


def test_a_mail_is_whole_and_comes_at_most_twice(
    configure: Configure, lake: Path, mails: Mails, caplog: pytest.LogCaptureFixture
) -> None:
    # A line that is a dot, or begins with one, would end the mail or lose it.
    DeltaTable(str(lake / "sites")).update(updates={"name": "'..Ridge é'"})
    config = configure(
        lake, olga=daily("csv,html", f"[deliver.olga.mail]\n{mails.toml()}", 'masts = ["mast-01"]')
    )
    state = config.with_name("state") / "deliver.db"
    assert at(config, NOON) == 0
    (mail,) = mails.found
    assert mail["Subject"] == "..Ridge é, 19 November 2026"
    files = {part.get_filename(): part.get_content() for part in mail.iter_attachments()}
    assert len(files["mast-01-2026-11-19.csv"].splitlines()) == 145
    assert files["mast-01-2026-11-19.html"].rstrip().endswith("</html>")

    def forget(handed: int) -> None:
        """As a kill would leave it that came before the answer was noted."""
        with sqlite3.connect(state) as database:
            database.execute("UPDATE sendings SET is_sent = 0, handed = ?", [handed])
        database.close()

    forget(1)
    assert at(config, NOON) == 0
    assert [each["Message-ID"] for each in mails.found] == [mail["Message-ID"]] * 2
    forget(2)
    caplog.clear()
    assert at(config, NOON) == 0
    assert len(mails.found) == 2
    assert "event=deliver.unconfirmed target=olga mast=mast-01 period=2026-11-19" in caplog.text
    assert at(config, NOON) == 0


def test_what_a_mail_server_refuses(
    configure: Configure, lake: Path, mails: Mails, caplog: pytest.LogCaptureFixture
) -> None:
    two = mails.toml(("olga@example.org", "gone@example.org"))
    config = configure(lake, olga=daily("csv", f"[deliver.olga.mail]\n{two}"))
    mails.says["gone@example.org"] = "451 try later"
    assert at(config, NOON) == 1
    assert mails.found == []
    # A whole mail is refused after its end: it wasn't taken, however often.
    mails.says = {"data": "552 too large"}
    for _ in range(4):
        assert at(config, NOON) == 1
    assert caplog.text.count("552 too large") == 4 * 2
    mails.says = {"gone@example.org": "550 no such user"}
    caplog.clear()
    assert at(config, NOON) == 0
    assert len(mails.found) == 2
    assert "event=deliver.nobody target=olga refused='gone@example.org: 550 no such user'" in caplog.text
    mails.says["olga@example.org"] = "550 no such user"
    assert at(config, NOON + DAY) == 1
    assert "refuses olga@example.org: 550 no such user; gone@example.org: 550" in caplog.text


def test_a_password_is_sent_over_tls_alone(
    configure: Configure, lake: Path, mails: Mails, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = f'{mails.toml()}username = "masts"\npassword = "secret"\n'
    config = configure(lake, olga=daily("csv", f"[deliver.olga.mail]\n{keys}"))
    assert at(config, NOON, "--test") == 1
    assert "has no STARTTLS, and would get the password in the clear" in capsys.readouterr().out
    assert mails.found == []


def test_a_pdf_by_the_program_and_its_log(configure: Configure, tmp_path: Path) -> None:
    lake, out = make_lake(tmp_path / "pdf", 1, 2, datetime.now(UTC)), tmp_path / "out"
    config = configure(lake, out=daily("pdf", folder(out), 'wait = "0s"'))
    done = fieldgate("deliver", "--cloud", config, "--state", tmp_path / "pdf.db")
    (path,) = out.iterdir()
    assert path.read_bytes().startswith(b"%PDF-1.")
    period = path.stem.removeprefix("mast-01-")
    line = f"INFO event=deliver.sent target=out mast=mast-01 period={period} number=0\n"
    assert (done.returncode, done.stderr) == (0, line)


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning")  # smtps is TLS
@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_login_over_tls(
    configure: Configure, lake: Path, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], scheme: str,
) -> None:  # fmt: skip
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    mails, tried = Mails(free_port), list[tuple[bytes, bytes]]()

    def login(_server: object, _session: object, _envelope: object, _how: object, given: Any) -> AuthResult:
        tried.append((given.login, given.password))
        return AuthResult(success=given.password == b"secret", handled=False)

    more: dict[str, Any] = {
        "auth_required": True,
        "authenticator": login,
        "tls_context": context,
        "require_starttls": True,
    }
    if scheme == "smtps":
        more = {
            "auth_required": True,
            "authenticator": login,
            "ssl_context": context,
            "auth_require_tls": False,
        }
    controller = Controller(mails, hostname="localhost", port=free_port, server_hostname="localhost", **more)
    (tmp_path / "mail.password").write_text("secret\n")
    table = mails.toml().replace("smtp://127.0.0.1", f"{scheme}://localhost")
    keys = f'{table}username = "masts"\npassword = {{ file = "mail.password" }}\n'
    config = configure(lake, olga=daily("csv", f"[deliver.olga.mail]\n{keys}"))
    # Its trigger is a connection of its own, by the system's authorities too.
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    controller.start()
    try:
        assert at(config, NOON, "--test") == 0
        (tmp_path / "mail.password").write_text("wrong")
        assert at(config, NOON, "--test") == 1
        monkeypatch.delenv("SSL_CERT_FILE")
        assert at(config, NOON, "--test") == 1
    finally:
        controller.stop()
    assert set(tried) == {(b"masts", b"secret"), (b"masts", b"wrong")}
    assert [mail["Subject"] for mail in mails.found] == ["fieldgate: a test"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sent  olga"
    assert "535" in lines[1]
    assert "wrong" not in lines[1]
    assert "CERTIFICATE_VERIFY_FAILED" in lines[2]


def test_into_a_bucket(
    configure: Configure, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "moto").mkdir()
    with Moto(tmp_path / "moto") as store:
        bucket, (access, secret) = store.make_bucket(), store.new_keys("s3:*")
        endpoint = f'endpoint = "http://127.0.0.1:{store.port}"'
        keys = f'{endpoint}\naccess_key = "{access}"\nsecret_key = "{secret}"'

        def place(name: str, bucket: str, keys: str) -> str:
            table = f'[deliver.{name}.bucket]\npath = "s3://{bucket}/from masts/"\n'
            return daily("csv,parquet", f"{table}[deliver.{name}.bucket.storage]\n{keys}")

        config = configure(
            lake, buyer=place("buyer", bucket, keys), gone=place("gone", "no-such", keys),
            spy=place("spy", bucket, keys.replace(secret, "wrong")),
        )  # fmt: skip
        with store.asking_for_keys():
            assert at(config, NOON, "buyer") == 0
            assert at(config, NOON, "--test") == 1
        objects = store.objects(bucket)
    ends = (".columns.csv", ".csv", ".parquet")
    stems = [f"from masts/mast-0{n}-2026-11-19{end}" for n in (1, 2) for end in ends]
    assert sorted(objects) == ["from masts/fieldgate-test.txt", *stems]
    assert len(objects["from masts/mast-01-2026-11-19.csv"].splitlines()) == 145
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sent  buyer"
    assert lines[1].startswith("not sent  gone: no such bucket: no-such at http://127.0.0.1:")
    assert "correct access_key and secret_key of [deliver.spy.bucket.storage]" in lines[2]


def test_what_is_due_is_printed_and_a_test_reaches_each_target(
    configure: Configure,
    lake: Path,
    tmp_path: Path,
    sshd: Sshd,
    mails: Mails,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    key = sshd.toml.replace("/key", "/other")
    config = configure(
        lake, out=daily("csv", folder(out)), ssh=daily("pdf", f"[deliver.ssh.sftp]\n{sshd.toml}"),
        olga=daily("html", f"[deliver.olga.mail]\n{mails.toml()}"),
        key=daily("csv", f"[deliver.key.sftp]\n{key}"), gone=daily("csv", f'folder = "{tmp_path / "gone"}"'),
    )  # fmt: skip
    state = tmp_path / "state" / "deliver.db"
    assert at(config, NOON, "--dry-run", "out", "ssh") == 0
    assert capsys.readouterr().out == "".join(
        f"{name}  mast-0{n}  2026-11-19  first  {form}\n"
        for name, form in (("out", "csv"), ("ssh", "pdf"))
        for n in (1, 2)
    )
    assert not state.parent.exists()
    assert at(config, NOON, "--test") == 1
    printed = capsys.readouterr().out
    assert printed.splitlines()[:3] == ["sent  out", "sent  ssh", "sent  olga"]
    assert "authorized_keys" in printed.splitlines()[3]
    assert printed.splitlines()[4].startswith(f"not sent  gone: {tmp_path}/gone/")
    assert names(out) == names(sshd.inbox) == ["fieldgate-test.txt"]
    assert mails.found[0]["Subject"] == "fieldgate: a test"
    assert at(config, NOON, "out") == 0
    change(lake, "mast-02", "2026-11-19")
    assert at(config, NOON + DAY, "--dry-run", "out") == 0
    assert capsys.readouterr().out == "".join(f"out  mast-0{n}  2026-11-20  first  csv\n" for n in (1, 2))
    assert at(config, NOON + DAY, "out") == 0
    assert at(config, NOON + 2 * DAY, "--dry-run", "out") == 0
    assert "out  mast-02  2026-11-19  correction 1  csv\n" in capsys.readouterr().out
    with pytest.raises(CloudError, match=r"has no \[deliver.olg\], but out, ssh, olga"):
        at(config, NOON, "olg")


def test_a_read_only_folder_has_systemds_key_in_its_remedy(configure: Configure, tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = configure(tmp_path / "lake", out=daily("csv", folder(out)))
    mounted = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
    command = (sys.executable, "-m", "gateway.cli", "deliver", "--cloud", str(config), "--test")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, str(out), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr}")
    assert done.returncode == 1
    assert done.stdout.startswith(f"not sent  out: {out}/")
    assert ": Read-only file system: mend or mount it; in systemd's service it also " in done.stdout
    assert done.stdout.endswith(f"needs ReadWritePaths={out}\n")


def test_one_process_at_a_time(configure: Configure, lake: Path, tmp_path: Path) -> None:
    config = configure(lake, out=daily("csv", folder(tmp_path / "out")))
    work = tmp_path / "state" / "deliver-work"
    work.mkdir(parents=True)
    held = os.open(work, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(CloudError, match="another `fieldgate deliver` is at work with it"):
        at(config, NOON)
    os.close(held)
    # What a kill left.
    (work / "left").mkdir()
    (work / "left" / "half.csv").write_text("x")
    assert at(config, NOON) == 0
    assert names(work) == []


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            'folder = "o"\n[deliver.a.mail]\nserver = "smtps://m"\nfrom = "a@b"\nto = ["a@b"]',
            "needs one of folder",
        ),
        ("", "needs one of folder, bucket, sftp and mail: two places are two"),
        ('[deliver.a.mail]\nserver = "m.example.org"\nfrom = "a@b"\nto = ["a@b"]', "must be smtps://HOST"),
        (
            '[deliver.a.mail]\nserver = "smtps://m"\nfrom = "a"\nto = ["a@b"]',
            "deliver.a.mail.from: must be an address",
        ),
        ('[deliver.a.sftp]\nurl = "sftp://h/x"', "deliver.a.sftp.url: must be sftp://USER@HOST"),
        ('[deliver.a.bucket]\npath = "x"', "must be s3://BUCKET"),
        ('folder = "o"\nwhat = "fleet"', "formats of a fleet are html and pdf: no csv"),
        ('folder = "o"\nsince = 1', "deliver.a.since: must be"),
        ('folder = "o"\nformat = "csv"', "deliver.a.format: is not a known key .did you mean"),
    ],
)
def test_what_is_wrong_in_the_config(configure: Configure, tmp_path: Path, keys: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(configure(tmp_path, a=f'period = "day"\nformats = ["csv"]\n{keys}'))


def test_without_a_delivery_there_is_nothing_to_do(configure: Configure, tmp_path: Path) -> None:
    done = fieldgate("deliver", "--cloud", configure(tmp_path))
    assert (done.returncode, "has no [deliver.NAME]: docs/examples" in done.stderr) == (1, True)
