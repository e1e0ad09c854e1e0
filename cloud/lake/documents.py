"""Documents that are kept with a mast: commissioning reports and calibration certificates, as PDF or JSON.

They are rows of the lake's table ``documents``, with their content: whoever may see a mast's rows may see its
documents, wherever the lake is. Rows are only ever added; of one ``id`` the row noted last counts.

A JSON is filed only if it has what its kind requires. ``fieldgate documents`` files, lists, saves and takes
back; nothing is deleted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cloud.command_line import OK, operator
from cloud.lake.answers import write_csv, write_table
from cloud.lake.mast import check_known
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.reader import Frame, LakeReader, Missing
from cloud.lake.tables import FILED, LakeError, append
from cloud.whole_files import whole_files

TABLE: Final = "documents"
PDF: Final = "PDF"
MOST_BYTES: Final = 20 << 20
MOST_TOGETHER_BYTES: Final = 60 << 20
"""One call's files are rows of one file, of which a reader takes all into its memory."""
_LONGEST: Final = 200
"""Characters of a name and of a summary."""
_TEXT: Final = pa.string()
SCHEMA: Final = pa.schema([
    *((name, _TEXT) for name in ("id", "gateway", "name", "kind", "summary")), ("bytes", pa.int64()),
    ("author", _TEXT), ("noted_at", pa.timestamp("us", tz="UTC")), ("withdrawn", pa.bool_()),
    ("content", pa.binary()),
])  # fmt: skip
"""Columns of ``documents``."""
_LISTED: Final = ("name", "kind", "summary", "bytes", "author", "noted_at", "id", "gateway")

CERTIFICATE: Final = "calibration certificate"
_COMMISSIONING: Final = "commissioning report"
_POINT: Final = "measurement_location.measurement_point"
_KINDS: Final = {
    "gateway_checks": (_COMMISSIONING, "gateway complete signed_by signed_at faults sensors", "signed by "
     "{signed_by}, {signed_at}: {count} faults"),
    # IEA Wind Task 43's digital calibration certificate, 1.0.0-2022.01: an anemometer's by IEC 61400-12-1.
    "calibration_id": (CERTIFICATE, "calibration_id calibration_lab.company_name customer.company_name "
     "test_item.model test_item.serial_number test_item.description test_item.oem.company_name "
     "setup.date_of_calibration setup.procedure setup.wind_tunnel_id setup.mounting_diameter.value "
     "result.ambient_conditions result.table.reference.value result.table.test_item.value "
     "result.linear_regression.slope.value result.linear_regression.offset.value "
     "result.linear_regression.rsd.value result.linear_regression.corr_coeff.value date_of_issue revision",
     "{test_item[model]} {test_item[serial_number]}, {setup[date_of_calibration]}: slope "
     "{result[linear_regression][slope][value]}, offset {result[linear_regression][offset][value]}, "
     "{calibration_id} of {calibration_lab[company_name]}"),
    # Task 43's WRA data model, 1.0 to 1.3.
    "measurement_location": ("WRA data model", "author organisation date version measurement_location.name "
     "measurement_location.latitude_ddeg measurement_location.longitude_ddeg "
     f"measurement_location.measurement_station_type_id {_POINT}.name {_POINT}.measurement_type_id "
     f"{_POINT}.height_m", "{measurement_location[0][name]}, {date}, by {author}"),
}  # fmt: skip
"""By a key that the others haven't: what a JSON claims to be, the keys that it requires, a line about it."""


def read_document(place: str, content: bytes) -> tuple[str, str, dict[str, Any]]:
    """Returns a file's kind, a line about it, and a JSON's content. Raises LakeError for no document."""
    if len(content) > MOST_BYTES:
        raise LakeError(f"{place}: has more than the {MOST_BYTES:,} bytes that a document may have")
    if content.startswith(b"%PDF-"):
        return PDF, "", {}
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        raise LakeError(f"{place}: is neither PDF nor JSON") from None
    claimed = (each for key, each in _KINDS.items() if isinstance(given, dict) and key in given)
    kind, required, line = next(claimed, ("", "", ""))
    if not kind:
        raise LakeError(
            f"{place}: is JSON of another kind than {', '.join(each[0] for each in _KINDS.values())}"
        )
    key = ""
    try:
        for key in required.split():
            for value in _values(given, key.split(".")):
                if key.endswith(".value") and type(value) not in (int, float):
                    raise ValueError("must be a number")
                if "date" in key:
                    date.fromisoformat(value)
        about = line.format(**(given | {"count": len(given.get("faults", ()))}))
    except (LookupError, TypeError, ValueError) as error:
        raise LakeError(f"{place}: is no {kind}: {key}: {error}") from None
    return kind, " ".join(about.split())[:_LONGEST], given


def _values(given: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yields what is at a path, in lists of each item. Raises LookupError where an item hasn't it."""
    if isinstance(given, list):
        for each in given:
            yield from _values(each, path)
    elif not path:
        yield given
    elif isinstance(given, dict) and path[0] in given:
        yield from _values(given[path[0]], path[1:])
    else:
        raise LookupError("is missing")


def documents(reader: LakeReader, gateway: str | None = None) -> Frame:
    """The documents of a mast or of all, without content; of a lake without documents none."""
    if reader.version(TABLE) < 0:
        return Frame(_LISTED, [])
    sql = f"{FILED} AND coalesce(gateway = ?, true) ORDER BY gateway, noted_at DESC, name"
    return reader.read(TABLE, sql, [gateway])


def document_of(
    reader: LakeReader, document: str, gateway: str | None = None
) -> tuple[dict[str, Any], bytes]:
    """A document, of that mast if one is named, and its content. Raises Missing, LakeError."""
    row = next((row for row in documents(reader, gateway).dicts() if row["id"] == document), None)
    if row is None:
        raise Missing(
            f"There is no document {document}: `fieldgate documents list` has those that there are."
        )
    sql = "SELECT content FROM documents WHERE gateway = ? AND id = ? AND content IS NOT NULL LIMIT 1"
    return row, bytes(reader.read(TABLE, sql, [row["gateway"], document]).rows[0][0])


def file_documents(
    reader: LakeReader, gateway: str, files: Mapping[str, bytes], author: str, now: datetime
) -> tuple[list[dict[str, Any]], list[str]]:
    """Files them all or none, in one commit: the rows that are new, and warnings. Raises CloudError."""
    check_known(reader, gateway)
    if sum(map(len, files.values())) > MOST_TOGETHER_BYTES:
        raise LakeError(
            f"{', '.join(files)}: have more than {MOST_TOGETHER_BYTES:,} bytes together: file them one by one"
        )
    channels: dict[str, str] = {}
    if reader.version("channels") >= 0:
        sql = "SELECT serial, max(channel) FROM channels WHERE gateway = ? GROUP BY serial"
        channels = dict(reader.read("channels", sql, [gateway]).rows)
    there, new, warnings = set(documents(reader, gateway).column("id")), dict[str, Any](), list[str]()
    noted = _after_all(reader, gateway, now)
    for place, content in files.items():
        kind, about, given = read_document(place, content)
        if kind == _COMMISSIONING and given["gateway"] != gateway:
            raise LakeError(f"{place}: is the {kind} of {given['gateway']}, not of {gateway}")
        if kind == CERTIFICATE:
            # The schema has several of one instrument in one text.
            serials = [each.strip() for each in str(given["test_item"]["serial_number"]).split(",")]
            own = [channels[each] for each in serials if each in channels]
            about = ": ".join([*own[:1], about])
            if not own:
                warnings.append(f"{place}: no channel of {gateway} has the serial {', '.join(serials)}")
        key = hashlib.sha256(f"{gateway}/".encode() + content).hexdigest()[:12]
        if key in there:
            warnings.append(f"{place}: is filed already, as {key}")
            continue
        name = Path(place).name[-_LONGEST:]
        row = (key, gateway, name, kind, about, len(content), author, noted, False, content)
        new[key] = dict(zip(SCHEMA.names, row, strict=True))
    append(reader.lakes, TABLE, SCHEMA, list(new.values()))
    return list(new.values()), warnings


def withdraw(reader: LakeReader, document: str, author: str, now: datetime) -> None:
    """Notes that a document isn't kept any more. Raises Missing, LakeError."""
    row, _ = document_of(reader, document)
    noted = _after_all(reader, row["gateway"], now)
    gone: dict[str, Any] = {"author": author, "noted_at": noted, "withdrawn": True}
    append(reader.lakes, TABLE, SCHEMA, [row | gone])


def _after_all(reader: LakeReader, gateway: str, now: datetime) -> datetime:
    """Now, or just after a mast's newest row: that counts, whatever the clocks of two machines are."""
    if reader.version(TABLE) < 0:
        return now
    sql = "SELECT epoch_ms(max(noted_at)) FROM documents WHERE gateway = ?"
    newest_ms = reader.read(TABLE, sql, [gateway]).rows[0][0]
    return now if newest_ms is None else max(now, _moment(newest_ms) + timedelta(milliseconds=1))


def _moment(since_1970_ms: int) -> datetime:
    return datetime.fromtimestamp(since_1970_ms / 1000, UTC)


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = (
        "Documents that are kept with a mast and linked from its page: PDF; JSON of `fieldgate commission`, "
        "of IEA Task 43's calibration certificate and WRA data model."
    )
    lake = argparse.ArgumentParser(add_help=False)
    add_lake(lake)
    lake.add_argument("--who", metavar="NAME", help="who notes it (default this user)")
    actions = arguments.add_subparsers(dest="action", metavar="ACTION", required=True)
    added = actions.add_parser("add", parents=[lake], help="file documents with a mast")
    added.add_argument("--mast", required=True, metavar="M", help="the gateway's name")
    most = f"at most {MOST_BYTES >> 20} MiB each"
    added.add_argument("files", type=Path, nargs="+", metavar="FILE", help=most)
    listed = actions.add_parser("list", parents=[lake], help="the documents")
    listed.add_argument("--mast", metavar="M", help="only this one's")
    listed.add_argument("--csv", action="store_true", help="CSV with a header")
    for name, meaning in (
        ("save", "write a document to a file"),
        ("withdraw", "take it back, which is noted"),
    ):
        one = actions.add_parser(name, parents=[lake], help=meaning)
        one.add_argument("id", metavar="ID", help="as list shows it")
        if name == "save":
            one.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="to be written")
            one.add_argument("--force", action="store_true", help="replace a file that is there")


def run(options: argparse.Namespace) -> int:
    """Does one of them. Raises CloudError."""
    reader, who, now = LakeReader(named_lakes(options)), options.who or operator(), datetime.now(UTC)
    reader.look()
    try:
        if options.action == "add":
            _add(reader, options.mast, options.files, who, now)
        elif options.action == "save":
            content = document_of(reader, options.id)[1]
            with whole_files([options.output], force=options.force) as part:
                part[options.output].write_bytes(content)
            sys.stdout.write(f"{options.output}\n")
        elif options.action == "withdraw":
            withdraw(reader, options.id, who, now)
            sys.stdout.write(f"{options.id} is withdrawn\n")
        else:
            found = documents(reader, options.mast)
            if options.mast is not None and not found.rows:
                check_known(reader, options.mast)
            rows = [tuple((row | {"noted_at": _moment(row["noted_at"])}).values()) for row in found.dicts()]
            (write_csv if options.csv else write_table)(_LISTED, rows, sys.stdout)
    except OSError as error:
        raise LakeError(f"{error.filename}: {error.strerror}") from error
    return OK


def _add(reader: LakeReader, mast: str, paths: Sequence[Path], who: str, now: datetime) -> None:
    files = {}
    for path in paths:
        with path.open("rb") as file:
            # One byte more says that it is too large, however large it is.
            files[str(path)] = file.read(MOST_BYTES + 1)
    new, warnings = file_documents(reader, mast, files, who, now)
    for each in warnings:
        sys.stderr.write(f"warning: {each}\n")
    for row in new:
        what = ", ".join(filter(None, (row["kind"], row["summary"])))
        sys.stdout.write(f"{row['id']} {row['name']}: {what}\n")
