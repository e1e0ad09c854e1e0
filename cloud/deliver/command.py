"""``fieldgate deliver``: sends each mast's day, week or month once, by ``[deliver.NAME]`` of cloud.toml.

Invariants: one process at a time sends by a file of what has been sent; a delivery has its own thread, so a
target that can't be reached holds back no other. What is sent is noted afterwards: a kill repeats it, files
under the same names. The end of a mail is noted before too, and sent at most twice.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from cloud.command_line import FAILED, OK, without_logs
from cloud.config import load
from cloud.config.model import DeliverConfig
from cloud.dashboard.report.command import pdf_of
from cloud.dashboard.report.fleet import FleetReport, read_fleet, write_fleet_page
from cloud.dashboard.report.markup import percent
from cloud.dashboard.report.page import Report, missing, read_report, write_page
from cloud.deliver.due import Due, Sent, due
from cloud.deliver.targets import Parcel, Refused, Send, sender
from cloud.errors import CloudError
from cloud.exports import command as exports
from cloud.lake.query import lakes_of
from cloud.lake.reader import LakeReader
from cloud.lake.tables import Lakes
from cloud.values import CLOUD_CONFIG, installed_version

log = logging.getLogger(__name__)

_STATE: Final = Path("/var/lib/fieldgate-cloud/deliver.db")
_CORRECTED: Final = "Corrected: statistics of this period have changed since it was sent."
_MOST_NAMED: Final = 20
_MOST_HANDED: Final = 2
"""How often the end of a mail may be sent without an answer being noted."""


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = (
        "Send what is due of the masts' days, weeks and months, and end: a timer calls it each hour. "
        "Exits with 1 where something that is due isn't delivered."
    )
    names = "these of [deliver.NAME] alone, at once even after a failure"
    arguments.add_argument("names", nargs="*", metavar="NAME", help=names)
    where = "the cloud's config: the lake, and who gets what (default %(default)s)"
    arguments.add_argument("--cloud", type=Path, default=CLOUD_CONFIG, metavar="FILE", help=where)
    state = "what has been sent (default %(default)s)"
    arguments.add_argument("--state", type=Path, default=_STATE, metavar="FILE", help=state)
    instead = arguments.add_mutually_exclusive_group()
    instead.add_argument("--dry-run", action="store_true", help="print what is due, and send nothing")
    instead.add_argument("--test", action="store_true", help="send each target a small file, and end")


def run(options: argparse.Namespace) -> int:
    """Sends what is due. Raises CloudError, ConfigError where it can't begin."""
    return deliver(options, datetime.now(UTC))


def deliver(options: argparse.Namespace, now: datetime) -> int:
    """As the command does, at a moment. Raises CloudError, ConfigError."""
    config = load(options.cloud)
    if not config.deliver:
        raise CloudError(f"{options.cloud} has no [deliver.NAME]: docs/examples/cloud.toml has one")
    for name in options.names:
        if name not in config.deliver:
            raise CloudError(f"{options.cloud} has no [deliver.{name}], but {', '.join(config.deliver)}")
    chosen = {name: config.deliver[name] for name in options.names or config.deliver}
    if options.test:
        return _test(chosen, now)
    lakes = lakes_of((), config)
    if options.dry_run:
        return _print(chosen, lakes, options.state, now)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    # One PDF is a thousand lines of theirs.
    without_logs("weasyprint", "fontTools")
    with _alone(options.state) as (work, held), ThreadPoolExecutor(len(chosen)) as threads:
        making = threading.Lock()
        deliveries = [
            Delivery(name, each, sender(name, each, [held]), work, making) for name, each in chosen.items()
        ]
        turn = partial(Delivery.turn, lakes=lakes, state=options.state, now=now, asked=options.names)
        return OK if all(list(threads.map(turn, deliveries))) else FAILED


@contextmanager
def _alone(state: Path) -> Iterator[tuple[Path, int]]:
    """An empty folder beside ``state`` for what is made, and the descriptor of the lock on it.

    A program that is started with the descriptor has the lock too: what outlives a kill of this process sends
    nothing beside the next one. Raises CloudError.
    """
    work = state.with_name(f"{state.stem}-work")
    try:
        work.mkdir(parents=True, exist_ok=True)
        held = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in work.iterdir():
                shutil.rmtree(left)
            yield work, held
        finally:
            os.close(held)
    except BlockingIOError:
        raise CloudError(f"{state}: another `fieldgate deliver` is at work with it") from None
    except OSError as error:
        raise CloudError(
            f"{error.filename or work}: {error.strerror}: --state names another place"
        ) from error


@dataclass(frozen=True)
class Delivery:
    """One ``[deliver.NAME]``. ``making``: one makes files at a time, as Matplotlib's settings are global."""

    name: str
    config: DeliverConfig
    send: Send
    work: Path
    making: threading.Lock

    def turn(self, lakes: Lakes, state: Path, now: datetime, asked: Sequence[str]) -> bool:
        """Sends what is due; whether nothing is left. Those ``asked`` for needn't wait after a failure."""
        now_s, is_done = int(now.timestamp()), True
        try:
            with closing(Sent(state, self.name, now_s)) as sent:
                if sent.again_s > now_s and not asked:
                    again = datetime.fromtimestamp(sent.again_s, UTC).isoformat()
                    log.warning("event=deliver.waits target=%s until=%s", self.name, again)
                    return False
                reader = LakeReader(lakes, self.config.masts)
                reader.look()
                for each in due(reader, self.config, sent, 1000 * now_s):
                    about = (self.name, each[0], str(each[1]))
                    try:
                        self._send(each, reader, sent, now)
                    except Refused as error:
                        is_done = False
                        words = "event=deliver.refused target=%s mast=%s period=%s problem=%r"
                        log.warning(words, *about, str(error))
                    except CloudError as error:
                        sent.tried(now_s, is_reached=False)
                        log.warning("event=deliver.unreachable target=%s problem=%r", self.name, str(error))
                        return False
                    except Exception:
                        # The other parcels go on.
                        is_done = False
                        log.exception("event=deliver.defect target=%s mast=%s period=%s", *about)
        except CloudError as error:
            is_done = False
            log.warning("event=deliver.failed target=%s problem=%r", self.name, str(error))
        return is_done

    def _send(self, each: Due, reader: LakeReader, sent: Sent, now: datetime) -> None:
        mast, period, sending = each
        note = partial(sent.note, mast, str(period))
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            with self.making:
                parcel = pack(each, self.config, reader, Path(folder), now)
            if sending.handed < _MOST_HANDED:
                try:
                    self.send(parcel, lambda: note(sending._replace(handed=sending.handed + 1)))
                except Refused:
                    note(sending)
                    raise
            else:
                log.warning("event=deliver.unconfirmed target=%s mast=%s period=%s", self.name, mast, period)
        note(sending._replace(is_sent=True))
        sent.tried(0, is_reached=True)
        words = "event=deliver.sent target=%s mast=%s period=%s number=%d"
        log.info(words, self.name, mast, period, sending.number)


def pack(each: Due, config: DeliverConfig, reader: LakeReader, folder: Path, now: datetime) -> Parcel:
    """Makes a parcel's files in a folder. Raises Refused where it can't be made."""
    mast, period, (number, intervals, *_) = each
    stem = f"{mast}-{period}{'-corrected' * bool(number)}{f'-{number}' * (number > 1)}"
    now_ms, files = int(now.timestamp() * 1000), list[Path]()
    try:
        if config.what == "fleet":
            fleet = read_fleet(reader, period, now_ms=now_ms)
            name, lines, write = "Fleet", list(_fleet_lines(fleet, number)), partial(write_fleet_page, fleet)
        else:
            report = read_report(reader, mast, period, now_ms=now_ms)
            name, lines = report.mast.site.get("name") or mast, list(_lines(report, number))
            write = partial(write_page, report)
        for form in (form for form in config.formats if form in ("html", "pdf")):
            page = write(now_ms=now_ms, version=installed_version())
            files.append(folder / f"{stem}.{form}")
            files[-1].write_bytes(pdf_of(page) if form == "pdf" else page.encode())
        # The config of a fleet's page has no tables.
        tables = [form for form in config.formats if form in exports.FORMATS]
        try:
            if tables and intervals:
                own = report.period
                export = exports.export_of(reader, mast, own.begin_ms, own.end_ms)
                export = replace(export, offset_min=own.offset_min)
                for path in exports.write_export(export, reader, folder, tables)[0]:
                    files.append(path.rename(folder / f"{stem}{path.name.removeprefix(mast)}"))
        except CloudError as error:
            # A channel's unit has changed within it, say: the report goes on its own.
            if not files:
                raise
            lines += ["", f"Without {', '.join(tables)}: {error}"]
        text = "\n".join([*lines, "", *(file.name for file in files), ""])
    except CloudError as error:
        raise Refused(str(error)) from error
    # A line break in a site's name would begin another header of the mail.
    title = f"{' '.join(str(name).split())}, {period.title}{', corrected' * bool(number)}"
    return Parcel(f"{mast}/{period}/{number}", title, text, files)


def _lines(report: Report, number: int) -> Iterator[str]:
    """What a mail says of a period."""
    yield f"{report.gateway}: {report.period.title}, {report.period.offset}"
    if number:
        yield _CORRECTED
    yield from missing(report)
    if report.held is not None:
        shares = [(row["by_intervals"], row["channel"]) for row in report.recovery]
        mean = sum(share for share, _ in shares) / len(shares)
        yield f"Recovery: {100 * mean:.1f} % of the intervals, mean of {len(shares)} channels"
        yield from (f"  {channel}: {100 * share:.1f} %" for share, channel in sorted(shares) if share < 1)


def _fleet_lines(report: FleetReport, number: int) -> Iterator[str]:
    """What a mail says of a fleet's period."""
    if number:
        yield _CORRECTED
    yield from report.missing
    mean = percent(report.recovery[0] if report.recovery else None)
    shares = [(each.recovery[0], each.gateway) for each in report.lines if each.recovery]
    yield f"Recovery: {mean} % of the intervals, mean of {len(shares)} masts"
    yield from (f"  {mast}: {percent(share)} %" for share, mast in shares[:_MOST_NAMED] if share < 1)


def _print(chosen: Mapping[str, DeliverConfig], lakes: Lakes, state: Path, now: datetime) -> int:
    for name, config in chosen.items():
        reader = LakeReader(lakes, config.masts)
        reader.look()
        with closing(Sent(state, name, int(now.timestamp()), is_dry=True)) as sent:
            found = list(due(reader, config, sent, int(now.timestamp() * 1000)))
        for mast, period, sending in found:
            what = f"correction {sending.number}" if sending.number else "first"
            sys.stdout.write(f"{name}  {mast}  {period}  {what}  {','.join(config.formats)}\n")
        if not found:
            sys.stdout.write(f"{name}  nothing is due\n")
    return OK


def _test(chosen: Mapping[str, DeliverConfig], now: datetime) -> int:
    code = OK
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "fieldgate-test.txt")
        for name, config in chosen.items():
            file.write_text(text := f"What is delivered to {name} comes like this.\n", encoding="utf-8")
            try:
                sender(name, config)(Parcel(f"test/{now}", "fieldgate: a test", text, [file]), lambda: None)
                sys.stdout.write(f"sent  {name}\n")
            except CloudError as error:
                sys.stdout.write(f"not sent  {name}: {error}\n")
                code = FAILED
    return code
