"""Documents that are kept with a mast: what is filed, what isn't, and what becomes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from cloud.lake.documents import MOST_BYTES, document_of, documents, file_documents, withdraw
from cloud.lake.object_store import for_delta_rs
from cloud.lake.reader import LakeReader, Missing
from cloud.lake.tables import LakeError
from cloud.values import installed_version
from gateway.commands.commissioning.checks import Result
from gateway.commands.commissioning.command import make_report
from gateway.config import Config, load
from spark_jobs.platform import schemas
from tests.support.commands import called
from tests.support.fleet_lake import reader_of, write, write_fleet
from tests.support.s3 import Moto

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
CUP = "cup-50m-a.wind_speed"


def quantity(value: object, unit: str = "m/s") -> dict[str, Any]:
    return {"value": value, "unit": unit, "uncertainty": {"value": 0.05, "coverage_factor": 2}}


def certificate(**other: Any) -> dict[str, Any]:
    """As IEA Wind Task 43's schema of 2022 has it."""
    company = {"company_name": "Example Wind Tunnel", "address": "Varel"}
    line = {"slope": quantity(0.04587, "(m/s)/Hz"), "offset": quantity(0.24453), "rsd": quantity(0.017),
            "corr_coeff": quantity(0.999991, "-")}  # fmt: skip
    return {
        "version": "1.0.0-2022.01", "calibration_id": "26-1002", "calibration_lab": company,
        "customer": company, "date_of_issue": "2026-10-05", "revision": "0",
        "test_item": {"model": "NRG 40H", "serial_number": "17950012, 9", "description": "Cup",
                      "oem": company},
        "setup": {"date_of_calibration": "2026-10-02", "procedure": "IEC 61400-12-1:2017",
                  "wind_tunnel_id": "1", "mounting_diameter": quantity(33.7, "mm")},
        "result": {"ambient_conditions": {}, "linear_regression": line,
                   "table": [{"reference": quantity(3.936), "test_item": quantity(80.67, "Hz")}]},
    } | other  # fmt: skip


SETUP, RESULT = (certificate()[each] for each in ("setup", "result"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    write(root, schemas.CHANNELS, {
        "gateway": ["mast-07", "mast-07", "mast-08"], "channel": [CUP, "dht.humidity", CUP],
        "cal": ["a", "b", "c"], "serial": ["17950012", None, "4"],
    })  # fmt: skip
    return root


def filed(lake: Path, *contents: object, mast: str = "mast-07") -> tuple[list[dict[str, Any]], list[str]]:
    files = {
        f"in/{at}.bin": each if isinstance(each, bytes) else json.dumps(each).encode()
        for at, each in enumerate(contents)
    }
    return file_documents(reader_of(lake), mast, files, "Ada", NOW)


def test_a_certificate_is_found_by_its_serial_and_says_its_figures(lake: Path) -> None:
    (row,), warnings = filed(lake, certificate())
    assert (row["kind"], warnings) == ("calibration certificate", [])
    assert row["summary"] == (
        f"{CUP}: NRG 40H 17950012, 9, 2026-10-02: slope 0.04587, offset 0.24453, 26-1002 of "
        "Example Wind Tunnel"
    )
    _, warnings = filed(lake, certificate(), mast="mast-08")
    assert warnings == ["in/0.bin: no channel of mast-08 has the serial 17950012, 9"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PK\x03\x04", "is neither PDF nor JSON"),
        (b"[" * 100_000, "is neither PDF nor JSON"),
        (b'"%PDF-"', "is JSON of another kind than commissioning report, calibration certificate, WRA"),
        ({"a": 1}, "is JSON of another kind"),
        (PDF + bytes(MOST_BYTES), "has more than the 20,971,520 bytes"),
        (certificate(result={}), "result.ambient_conditions: is missing"),
        (certificate(setup={}), "is no calibration certificate: setup.date_of_calibration: is missing"),
        (certificate(date_of_issue="soon"), "date_of_issue: Invalid isoformat string"),
        (certificate(setup=SETUP | {"mounting_diameter": quantity("33.7")}), "must be a number"),
        (certificate(result=RESULT | {"table": [{}]}), "result.table.reference.value: is missing"),
        ({"measurement_location": [], "author": "x"}, "is no WRA data model: organisation: is missing"),
        ({"gateway_checks": []}, "is no commissioning report: gateway: "),
    ],
)  # fmt: skip
def test_what_isnt_what_it_claims_is_refused_with_all_that_came_with_it(
    lake: Path, content: object, problem: str
) -> None:
    with pytest.raises(LakeError, match=r"in/1\.bin: .*" + problem.replace(".", r"\.")):
        filed(lake, PDF, content)
    assert not (lake / "documents").exists()


def test_what_fieldgate_writes_itself_is_taken(tmp_path: Path) -> None:
    """The report of a commissioning, and the export of a mast as Task 43 describes one."""
    lake, exported = tmp_path / "lake", tmp_path / "m.json"
    write_fleet(lake, 1, 1, end=NOW)
    config = replace_id(load(Path("docs/examples/simulated.toml")), "mast-01")
    signed = dict.fromkeys(("started", "readings_from", "version", "config_sha256"), "x")
    signed |= {"signed_by": "Ada", "signed_at": "2026-11-30T11:00:00Z"}
    report = make_report(config, [], {"clock": Result("fault", "not set")}, signed)
    before = datetime.now(UTC)
    done = called("export", "--lake", lake, "--mast", "mast-01", "--format", "iea43", "-o", exported)
    assert done.returncode == 0
    rows, _ = filed(lake, report.content, exported.read_bytes(), mast="mast-01")
    # A day may begin meanwhile.
    assert [(row["kind"], row["summary"]) for row in rows] in [
        [
            ("commissioning report", "signed by Ada, 2026-11-30T11:00:00Z: 1 faults"),
            ("WRA data model", f"mast-01, {day:%Y-%m-%d}, by fieldgate {installed_version()}"),
        ]
        for day in (before, datetime.now(UTC))
    ]
    other = make_report(replace_id(config, "mast-02"), [], {}, signed)
    with pytest.raises(LakeError, match="is the commissioning report of mast-02, not of mast-01"):
        filed(lake, other.content, mast="mast-01")


def replace_id(config: Config, gateway: str) -> Config:
    return replace(config, gateway=replace(config.gateway, id=gateway))


def test_the_same_is_kept_once_and_taken_back_by_name(lake: Path) -> None:
    (first,), _ = filed(lake, PDF)
    again, warnings = filed(lake, PDF)
    assert (again, warnings) == ([], [f"in/0.bin: is filed already, as {first['id']}"])
    (other,), _ = filed(lake, PDF, mast="mast-08")
    assert other["id"] != first["id"]
    row, content = document_of(reader_of(lake), first["id"], "mast-07")
    assert (row["author"], row["bytes"], content) == ("Ada", len(PDF), PDF)
    with pytest.raises(Missing):
        document_of(reader_of(lake), first["id"], "mast-08")
    # By a clock that is behind.
    withdraw(reader_of(lake), first["id"], "Olga", datetime(2020, 1, 1, tzinfo=UTC))
    assert documents(reader_of(lake)).column("id") == [other["id"]]
    with pytest.raises(Missing):
        document_of(reader_of(lake), first["id"], "mast-07")
    assert DeltaTable(str(lake / "documents")).to_pyarrow_table().num_rows == 3
    (back,), _ = file_documents(
        reader_of(lake), "mast-07", {"a.pdf": PDF}, "Ada", datetime(2019, 1, 1, tzinfo=UTC)
    )
    assert document_of(reader_of(lake), back["id"], "mast-07")[1] == PDF


def test_more_than_a_reader_has_memory_for_is_refused(lake: Path) -> None:
    large = [PDF + bytes([number]) * (MOST_BYTES - len(PDF)) for number in range(4)]
    with pytest.raises(LakeError, match=r"in/3\.bin: have more than 62,914,560 bytes together"):
        filed(lake, *large)
    rows, _ = filed(lake, *large[:3])
    assert [document_of(reader_of(lake), row["id"])[1] for row in rows] == large[:3]


def test_others_of_a_lake_see_nothing_of_it(lake: Path) -> None:
    (row,), _ = filed(lake, PDF)
    assert document_of(reader_of(lake, gateways=["mast-0*"]), row["id"])[1] == PDF
    stranger = reader_of(lake, gateways=["mast-08"])
    assert documents(stranger).rows == documents(stranger, "mast-07").rows == []
    with pytest.raises(Missing):
        document_of(stranger, row["id"], "mast-07")


def test_in_a_bucket(lake: Path, tmp_path: Path) -> None:
    channels = DeltaTable(str(lake / "channels")).to_pyarrow_table()
    (tmp_path / "moto").mkdir()
    with Moto(tmp_path / "moto") as store:
        options, uri = store.options(), f"s3://{store.make_bucket()}/lake"
        write_deltalake(f"{uri}/channels", channels, storage_options=for_delta_rs(options))
        reader = LakeReader({"lake": (uri, options)})
        reader.look()
        ((row,), _) = file_documents(reader, "mast-07", {"a.pdf": PDF}, "Ada", NOW)
        reader.look()
        assert document_of(reader, row["id"], "mast-07")[1] == PDF


def test_the_command(lake: Path, tmp_path: Path) -> None:
    pdf, json_file = tmp_path / "Zertifikat über Cup.pdf", tmp_path / "26-1002.json"
    pdf.write_bytes(PDF)
    json_file.write_text(json.dumps(certificate()))
    words = ("documents", "add", "--lake", lake, "--who", "Ada")
    done = called(*words, "--mast", "mast-07", pdf, json_file)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.endswith(" Zertifikat über Cup.pdf: PDF")
    assert f" 26-1002.json: calibration certificate, {CUP}: NRG 40H" in second
    listed = called("documents", "list", "--lake", lake, "--csv").stdout.splitlines()
    assert listed[0] == "name,kind,summary,bytes,author,noted_at,id,gateway"
    assert len(listed) == 3
    out = tmp_path / "out.pdf"
    saved = called("documents", "save", "--lake", lake, first[:12], "-o", out)
    assert (saved.stdout, out.read_bytes()) == (f"{out}\n", PDF)
    assert (
        "exists: --force replaces"
        in called("documents", "save", "--lake", lake, first[:12], "-o", out).stderr
    )
    assert (
        called("documents", "withdraw", "--lake", lake, first[:12]).stdout == f"{first[:12]} is withdrawn\n"
    )
    for arguments, problem in (
        (("list", "--mast", "mast-7"), "no mast mast-7 in the lake"),
        (("add", "--mast", "mast-7", pdf), "did you mean mast-07?"),
        (("add", "--mast", "mast-07", tmp_path / "none"), f"{tmp_path}/none: No such file"),
        (("save", first[:12], "-o", out, "--force"), f"There is no document {first[:12]}"),
    ):
        failed = called("documents", *arguments, "--lake", lake)
        assert failed.returncode == 1
        assert problem in failed.stderr
