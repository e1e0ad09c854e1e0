"""What needs attention in a fleet: judged by tables as the jobs store them, for whoever may see the mast."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloud.config import DashboardUser
from cloud.dashboard import fleet_page
from cloud.dashboard.attention import Cause, causes
from cloud.dashboard.audience import Audience
from cloud.dashboard.fleet import EVIDENCE, Fleet, FleetReader
from cloud.dashboard.live import LiveReader, LiveReadings
from cloud.errors import CloudError
from cloud.lake.acknowledgements import acknowledge
from cloud.remedies import remedies, remedy_of
from gateway.status import findings as source_of_findings
from spark_jobs import alerting
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
TODAY = NOW.date()
CUPS = [f"cup-{at}.wind_speed" for at in range(6)]
PASSWORD = "scrypt:AAAAAAAAAAAAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"  # noqa: S105


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def alert(root: Path, gateway: str, rule: str | None, channel: str | None = None, **other: Any) -> None:
    usual = {"kind": "event", "severity": "warning", "raised_at": ago(2), "historical": False}
    row = {"gateway": gateway, "rule": rule, "channel": channel} | usual | other
    write(root, schemas.ALERTS, {name: [value] for name, value in row.items()})


def finding(severity: str, what: str, area: str = "mqtt", remedy: str | None = None) -> dict[str, str | None]:
    return {"area": area, "severity": severity, "what": what, "remedy": remedy}


def report(root: Path, gateway: str, hours: float, *findings: dict[str, str | None], **other: Any) -> None:
    made = ago(hours)
    row = {"gateway": gateway, "id": f"{gateway} {hours}", "time": made, "kafka_time": made}
    row |= {"date": made.date(), "findings": list(findings) or None} | other
    write(root, schemas.HEALTH, {name: [value] for name, value in row.items()})


def calibrated(root: Path, gateway: str, channels: Sequence[str], days: int, **other: Any) -> None:
    row = {"gateway": gateway, "in_force": True, "expires": TODAY + timedelta(days=days)} | other
    columns = {name: [value] * len(channels) for name, value in row.items()}
    write(root, schemas.CHANNELS, columns | {"channel": list(channels)})


def fleet_of(root: Path) -> Fleet:
    return FleetReader(reader_of(root), LiveReader(None, ())).read()


def found_in(root: Path) -> list[Cause]:
    return causes(fleet_of(root), NOW.timestamp())


def lines(found: Sequence[Cause]) -> list[tuple[str, str, str]]:
    return [(each.severity, each.gateway, each.what) for each in found]


def test_the_worst_comes_first_and_what_is_over_or_mere_information_does_not(tmp_path: Path) -> None:
    alert(tmp_path, "b", "cup-stuck", CUPS[0], detail="b: cup has not moved")
    alert(tmp_path, "z", "cloned", severity="critical", detail="z: two gateways with this id")
    alert(tmp_path, "a", "gale", CUPS[0], severity="info")
    alert(tmp_path, "a", "cloned", severity="critical", historical=True)
    alert(tmp_path, "a", "cloned", severity="critical", cleared_at=ago(1))
    alert(tmp_path, "y", None, severity=None)
    report(tmp_path, "c", 3, finding("warning", "hot", "heat", "shade"), finding("error", "no connection"))
    report(tmp_path, "d", 27)
    report(tmp_path, "e", 25)
    calibrated(tmp_path, "f", CUPS[:1], -1)
    calibrated(tmp_path, "g", CUPS[:1], 30)
    calibrated(tmp_path, "h", CUPS[:1], 31)
    found = found_in(tmp_path)
    assert lines(found) == [
        ("critical", "f", f"the calibration of {CUPS[0]} expired 1 day ago"),
        ("critical", "z", "two gateways with this id"),
        ("error", "c", "mqtt: no connection"),
        ("warning", "b", "cup has not moved"),
        ("warning", "c", "heat: hot"),
        ("warning", "d", "no daily report for 27 h"),
        ("warning", "g", f"the calibration of {CUPS[0]} expires in 30 days"),
        ("warning", "y", "an alert without a rule"),
    ]
    said = {each.gateway: each.remedy for each in found if each.gateway in "zdg"}
    assert said["z"] == "Stop one of the two gateways, or give it a gateway.id of its own."
    assert "fieldgate-report.timer" in said["d"]
    assert said["g"].startswith("Book the laboratory")
    assert [each.remedy for each in found if each.gateway == "c"] == ["", "shade"]
    assert {each.gateway for each in found if each.since} == {"b", "y", "z"}
    assert found[3].since == f"{ago(2):%Y-%m-%d %H:%M}"


def test_one_cause_is_shown_once(tmp_path: Path) -> None:
    for name in CUPS:
        alert(tmp_path, "a", "calibration-ends", name, kind="calibration")
        alert(tmp_path, "a", "calibration-expired", name, kind="calibration", severity="critical")
        alert(tmp_path, "b", "cup-stuck", name)
    alert(tmp_path, "c", "half-a-year", CUPS[0], kind="calibration", detail="book it")
    calibrated(tmp_path, "a", CUPS[1:], -3)
    calibrated(tmp_path, "a", CUPS[:1], -4)
    calibrated(tmp_path, "c", CUPS[:1], 100)
    # The gateway's own words of what an alert is about; each with another, of another cause.
    report(tmp_path, "d", 3, finding("error", "the supply is low", "power", "a fresh battery"))
    alert(tmp_path, "d", "weak-supply", detail="d: supply is weak")
    full = finding("warning", "9 records wait, 99% full", "outbox")
    report(tmp_path, "e", 3, full, finding("error", "can't be written", "outbox", "replace the disk"))
    alert(tmp_path, "e", "outbox-in-memory", severity="critical", detail="e: its disk fails")
    report(tmp_path, "f", 50)
    alert(tmp_path, "f", "sensor-silent", severity="critical", detail="f: nothing from gateway")
    report(tmp_path, "g", 50)
    alert(tmp_path, "g", "sensor-silent", CUPS[0], severity="critical", detail="g: nothing from cup-0")
    report(tmp_path, "h", 3, *(finding("error", f"rejects records for {at}", "kafka", "x") for at in "abc"))
    found = found_in(tmp_path)
    remedied = {each.what: each.remedy for each in found}
    assert remedied["its disk fails"] == "replace the disk"
    assert remedied["supply is weak"] == "a fresh battery"
    three = "6 channels (cup-0.wind_speed, cup-1.wind_speed, cup-2.wind_speed, …)"
    assert lines(found) == [
        ("critical", "a", f"the calibrations of {three} expired, the first 4 days ago"),
        ("critical", "e", "its disk fails"),
        ("critical", "f", "nothing from gateway"),
        ("critical", "g", "nothing from cup-0"),
        ("error", "d", "supply is weak"),
        ("error", "h", "kafka: rejects records for a and 2 more"),
        ("warning", "b", f"cup-stuck: {three}"),
        ("warning", "c", "book it"),
        ("warning", "e", "outbox: 9 records wait, 99% full"),
        ("warning", "g", "no daily report for 2 d"),
    ]


def test_the_newest_report_counts_for_a_week(tmp_path: Path) -> None:
    report(tmp_path, "a", 30, finding("error", "was there yesterday"))
    report(tmp_path, "a", 6)
    report(tmp_path, "b", 7 * 24 + 1, finding("error", "of last week"))
    report(tmp_path, "c", 7 * 24 - 1, finding("error", "still of this week"), finding("ok", "fine"))
    # Its clock was years ahead then.
    report(tmp_path, "d", 30, finding("error", "the clock"), time=NOW + timedelta(days=3000))
    report(tmp_path, "d", 6)
    report(tmp_path, "e", 6, daemon="no answer from 127.0.0.1:8080")
    report(tmp_path, "f", 24 * 31)
    report(tmp_path, "g", 24 * 29)
    assert lines(found_in(tmp_path)) == [
        ("error", "c", "mqtt: still of this week"),
        ("error", "e", "daemon: it did not answer: no answer from 127.0.0.1:8080"),
        ("warning", "b", "no daily report for 7 d"),
        ("warning", "c", "no daily report for 7 d"),
        ("warning", "g", "no daily report for 29 d"),
    ]


def test_a_calibration_counts_while_its_record_is_in_force(tmp_path: Path) -> None:
    calibrated(tmp_path, "a", CUPS[:1], -40, in_force=False)
    calibrated(tmp_path, "a", CUPS[:1], 400)
    calibrated(tmp_path, "b", CUPS[:1], -40, in_force=False)
    calibrated(tmp_path, "c", CUPS[:1], 0, in_force=None)
    calibrated(tmp_path, "d", CUPS[:2], 0, expires=None)
    assert lines(found_in(tmp_path)) == [("warning", "c", f"the calibration of {CUPS[0]} expires today")]


def test_a_user_sees_what_is_of_their_masts_alone(tmp_path: Path) -> None:
    for gateway in ("north-1", "south-1"):
        alert(tmp_path, gateway, "cloned")
        report(tmp_path, gateway, 3, finding("error", f"of {gateway}"))
        calibrated(tmp_path, gateway, CUPS[:1], 3)
    users = {
        "anna": DashboardUser(password=PASSWORD, gateways=["north-*"]),
        "nobody": DashboardUser(password=PASSWORD, gateways=["elsewhere"]),
        "olga": DashboardUser(password=PASSWORD),
    }
    audience = Audience({"lake": (str(tmp_path), None)}, users)
    audience.look()
    seen = {
        user: {each.gateway for each in causes(audience.fleet(user).read(), NOW.timestamp())}
        for user in users
    }
    assert seen == {"anna": {"north-1"}, "nobody": set(), "olga": {"north-1", "south-1"}}
    shown = causes(audience.fleet("anna").read(), NOW.timestamp())
    assert "south" not in str(shown)
    assert len(shown) == 3


def cells(fleet: Fleet) -> dict[str, tuple[Any, ...]]:
    names = ("report", "findings", "is_report_poor", "calibration", "is_calibration_due")
    made = fleet_page.rows(fleet, None, NOW.timestamp())
    return {row["gateway"]: tuple(row[name] for name in names) for row in made}


def test_the_lists_columns_of_reports_and_calibrations(tmp_path: Path) -> None:
    report(tmp_path, "a", 25)
    report(tmp_path, "b", 27)
    report(tmp_path, "c", 3, finding("warning", "hot"), finding("ok", "fine"))
    calibrated(tmp_path, "a", CUPS[:1], 31)
    calibrated(tmp_path, "b", CUPS[:1], 400)
    calibrated(tmp_path, "b", CUPS[1:2], 30)
    calibrated(tmp_path, "d", CUPS[:1], -2)
    fleet = fleet_of(tmp_path)
    assert cells(fleet) == {
        "a": ("25 h", 0, False, 31, False),
        "b": ("27 h", 0, True, 30, True),
        "c": ("3 h", 1, True, None, False),
        "d": ("–", None, False, -2, True),
    }
    assert [each["label"] for each in fleet_page.columns(fleet)][-2:] == ["report", "calibration"]
    (row,) = [each for each in fleet.frame().dicts() if each["gateway"] == "b"]
    assert (row["reported_at"], row["findings"]) == (ago(27).timestamp() * 1000, 0)
    assert row["expires"] == TODAY + timedelta(days=30)


def test_an_older_lake_has_the_pages_as_they_were(lake: Path, tmp_path: Path) -> None:
    fleet = fleet_of(lake)
    assert fleet.missing == []
    assert {name for name, each in fleet.evidence.items() if isinstance(each, str)} == {"daily reports"}
    assert "The lake has no table health yet" in str(fleet.evidence["daily reports"])
    assert [each["label"] for each in fleet_page.columns(fleet)][-2:] == ["lost", "calibration"]
    shutil.rmtree(lake / "channels")
    shutil.rmtree(lake / "alerts")
    older = fleet_of(lake)
    assert [each["gateway"] for each in older.masts] == ["mast-01", "mast-02"]
    assert causes(older, NOW.timestamp()) == []
    assert all(isinstance(each, str) for each in older.evidence.values())
    assert older.evidence.keys() == EVIDENCE.keys()
    assert fleet_page.columns(older)[-1]["label"] == "lost"
    assert {each[0] for each in cells(older).values()} == {"–"}
    (tmp_path / "empty").mkdir()
    assert causes(fleet_of(tmp_path / "empty"), NOW.timestamp()) == []


def packaged_rules() -> Iterator[dict[str, Any]]:
    text = Path(alerting.__path__[0], "default_rules.toml").read_text()
    yield from tomllib.loads(text)["rule"]


def test_every_packaged_rule_that_asks_for_action_has_a_remedy() -> None:
    rules = {rule["name"]: rule["severity"] for rule in packaged_rules()}
    assert {name for name, severity in rules.items() if severity != "info"} <= remedies().keys()
    assert remedies().keys() - rules.keys() == {"no-report"}
    assert all(each["remedy"].endswith((".", "timer")) for each in remedies().values())
    named = {name: each["events"].split() for name, each in remedies().items() if each["events"]}
    of_rules = {rule["name"]: rule["events"] for rule in packaged_rules() if rule["kind"] == "event"}
    assert named == {name: [given] if isinstance(given, str) else given for name, given in of_rules.items()}
    assert remedy_of("site-moved") == remedies()["mast-moved"]["remedy"]
    assert remedy_of("site-back") == ""


@pytest.mark.parametrize("rule", [name for name, each in remedies().items() if each["area"]])
def test_the_gateway_has_findings_of_the_same_cause(rule: str) -> None:
    """Its words are looked for as they stand in the source of ``gateway.status.findings``."""
    area, says = remedies()[rule]["area"], remedies()[rule]["says"]
    source = Path(source_of_findings.__file__).read_text()
    assert (rule, area) == ("sensor-silent", "report") or f'Finding("{area}", ' in source
    assert says in source


def test_days_are_of_utc(tmp_path: Path) -> None:
    calibrated(tmp_path, "a", CUPS[:1], 0)
    fleet = fleet_of(tmp_path)
    last = datetime(2026, 11, 21, 23, 59, tzinfo=UTC).timestamp()
    assert causes(fleet, last)[0].what.endswith("expires today")
    assert causes(fleet, last + 60)[0].what.endswith("expired 1 day ago")
    assert date(2026, 11, 21) == TODAY


def test_what_is_acknowledged_comes_last(tmp_path: Path) -> None:
    for name, channel in (("a1", CUPS[0]), ("a2", CUPS[1])):
        alert(tmp_path, "a", "cup-stuck", channel, id=name, detail=f"{channel} stands", severity="critical")
    alert(tmp_path, "z", "cloned", id="z1", detail="two with one id")
    found = [(each.gateway, each.alerts, each.seen) for each in found_in(tmp_path)]
    assert found == [("a", ("a1", "a2"), ""), ("z", ("z1",), "")]
    reader = reader_of(tmp_path)
    acknowledge(reader, "olga", ["a1"], note="on my way", lasts="2h")
    reader.look()
    # Beside live values, as where Kafka is. The one of the two that nobody has seen stays at the top.
    live = LiveReadings(lambda: pytest.fail("not started"))
    live.last_seen_us = lambda: {"y": 1}  # type: ignore[method-assign]
    fleet = FleetReader(reader, LiveReader(live, ("*",))).read()
    assert [(each.what, each.alerts, each.seen[:20]) for each in causes(fleet, NOW.timestamp())] == [
        (f"{CUPS[1]} stands", ("a2",), ""), ("two with one id", ("z1",), ""),
        (f"{CUPS[0]} stands", ("a1",), "acknowledged by olga"),
    ]  # fmt: skip
    assert causes(fleet, NOW.timestamp())[-1].seen.endswith(": on my way")


def test_what_was_over_at_once_stays_for_a_week_or_until_it_is_acknowledged(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    for name, gateway, days in (("a1", "a", 6.9), ("a2", "a", 1), ("b1", "b", 7.1), ("c1", "c", 0.5)):
        at = now - timedelta(days=days)
        lost = {"id": name, "detail": f"{gateway} lost readings", "severity": "critical"}
        alert(tmp_path, gateway, "readings-dropped", raised_at=at, cleared_at=at, **lost)
    reader = reader_of(tmp_path)
    acknowledge(reader, "olga", ["c1"])
    reader.look()
    found = causes(FleetReader(reader, LiveReader(None, ())).read(), now.timestamp())
    assert [(each.severity, each.what, each.alerts, each.seen[:20]) for each in found] == [
        ("critical", "a lost readings and 1 more, 24 h ago", ("a1", "a2"), ""),
        ("critical", "c lost readings, 12 h ago", ("c1",), "acknowledged by olga"),
    ]
    assert found[0].remedy.startswith("Make room")


def test_who_may_acknowledge(tmp_path: Path) -> None:
    alert(tmp_path, "a", "cup-stuck", id="a1")
    alert(tmp_path, "b", "cup-stuck", id="b1")
    may = DashboardUser(password=PASSWORD, gateways=["a"], acknowledge=True)
    sees = DashboardUser(password=PASSWORD)
    audience = Audience({"lake": (str(tmp_path), None)}, {"olga": may, "anna": sees})
    audience.look()
    assert audience.acknowledging("anna") is None
    act = audience.acknowledging("olga")
    assert act is not None
    with pytest.raises(CloudError, match="No such alert is open"):
        act(["b1"])
    assert [each.gateway for each in act(["a1"])] == ["a"]
    audience.look()
    assert audience.fleet("anna").read().seen["a1"].author == "olga"
