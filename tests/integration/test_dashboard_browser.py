"""The pages over a lake in a real Chromium, from the command as a user starts it."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable

from cloud.lake.cleaning import marks
from cloud.local.process import free_port
from spark_jobs.platform import schemas
from tests.integration.test_dashboard_commands import fill, press
from tests.support.browser import Chromium, Page
from tests.support.commands import dashboard as run
from tests.support.fleet_lake import write, write_fleet
from tests.support.servers import eventually

STANDS_STILL = re.compile(
    r"Live values stand still: since \S+ \S+ UTC: no answer from Kafka at 127\.0\.0\.1:"
)
HOSTILE = "<img src=x onerror=document.title='gone'>{{7*7}}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dashboard") / "lake"
    write_fleet(root, 3, 3, end=datetime(2026, 11, 21, tzinfo=UTC))
    seen = [datetime(2026, 11, 21, tzinfo=UTC)]
    write(
        root,
        schemas.PRESENCE,
        {"gateway": [HOSTILE], "channel": [HOSTILE], "last_seen": seen, "state": ["online"]},
    )
    alert = {
        "gateway": [HOSTILE],
        "rule": [HOSTILE],
        "severity": ["critical"],
        "detail": [HOSTILE],
        "raised_at": seen,
        "historical": [False],
    }
    write(root, schemas.ALERTS, alert)
    place = {"gateway": [HOSTILE], "valid_from": seen, "latitude": [28.0], "longitude": [83.0]}
    write(root, schemas.SITES, place)
    now = datetime.now(UTC)
    found = [{"area": f"part {at}", "severity": "warning", "what": "x", "remedy": None} for at in range(22)]
    hostile = {"area": "mqtt", "severity": "error", "what": HOSTILE, "remedy": HOSTILE}
    report = {"gateway": [HOSTILE, "mast-02"], "time": [now, now], "kafka_time": [now, now],
              "date": [now.date(), now.date()], "findings": [[hostile], found]}  # fmt: skip
    write(root, schemas.HEALTH, report)
    write_a_move(root)
    return root


MOVED = datetime(2026, 11, 20, 12, tzinfo=UTC)


def give_event(root: Path, kind: str, at: datetime, **fields: object) -> None:
    row: dict[str, object] = {"gateway": "mast-02", "time": at, "kafka_time": at, "date": at.date()}
    row |= {"id": f"{kind} {at}", "kind": kind, "run": "0123456789ab", "fields": json.dumps(fields)}
    write(root, schemas.EVENTS, {name: [each] for name, each in row.items()})


def write_a_move(root: Path) -> None:
    """Mast-02 has a GPS receiver, and went north for two hours."""
    give_event(root, "site-moved", MOVED, distance_m=900, latitude=28.01, longitude=84.0)
    give_event(root, HOSTILE, MOVED - timedelta(hours=1), problem=HOSTILE)
    times = [MOVED + timedelta(minutes=each) for each in range(-30, 121)]
    gps: dict[str, list[Any]] = {
        "gateway": ["mast-02"] * 151,
        "channel": ["gps.location"] * 151,
        "date": [MOVED.date()] * 151,
    }
    north = [28.0 + max(0, each) / 1000 for each in range(-30, 121)]
    write(root, schemas.READINGS, gps | {"time": times, "latitude": north, "longitude": [84.0] * 151})
    mean = {"quantity": ["location"], "unit": ["m"], "interval_s": [600], "interval_start": [MOVED],
            "avg": [900.0], "count": [600], "expected": [600], "recovery": [1.0], "version": [1]}  # fmt: skip
    write(root, schemas.STATISTICS, {name: each[:1] for name, each in gps.items()} | mean)


@pytest.fixture(scope="module")
def url(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(lake, tmp_path_factory.mktemp("log") / "dashboard.log") as at:
        yield at


@contextmanager
def served(lake: Path, log: Path, *options: str) -> Iterator[str]:
    """The pages' address; they say nothing but that."""
    port = free_port()
    command = ("dashboard", "--lake", str(lake), "--listen", f"127.0.0.1:{port}", *options)
    # Nothing listens there: what is live is away, which the pages say.
    with log.open("w") as out, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        kafka = ("--bootstrap-servers", f"127.0.0.1:{held.getsockname()[1]}")
        # NiceGUI takes itself for a test of its own where it finds pytest's variable.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        process = subprocess.Popen(
            (sys.executable, "-m", "gateway.cli", *command, *kafka), stdout=out, stderr=out, env=env
        )
        try:
            eventually(log.read_text, 60, until=lambda text: f"http://127.0.0.1:{port}/" in text)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)
    # However long it is away, it is logged once.
    problem, address = sorted(log.read_text().splitlines())
    assert problem.startswith("event=live.stands_still error=no answer from Kafka at 127.0.0.1:")
    assert address == f"http://127.0.0.1:{port}/"


def visit(page: Page, url: str, until: str) -> None:
    page.open(url)
    page.see("main", lambda text: until in text)
    eventually(lambda: page.run("document.querySelectorAll('canvas, .map path').length"), 20, until=bool)


def looks_well(page: Page, url: str) -> None:
    """Nothing wider than the screen, nothing in the console, nothing from elsewhere."""
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints() == []
    assert [at for at in page.requested() if not at.startswith((url, "data:", "blob:", "about:"))] == []


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_fleet_and_mast(chromium: Chromium, url: str, width: int, height: int) -> None:
    page = chromium.page(width, height)
    visit(page, f"{url}/", "mast-03")
    assert "Plateau 1" in page.text("main")
    assert HOSTILE in page.text("main")
    assert page.run("document.title") == "Fleet · fieldgate"
    visit(page, f"{url}/mast/mast-03", "cup-50m-a.wind_speed over time")
    page.see("main", lambda text: STANDS_STILL.search(text) is not None)
    assert "Weibull" not in page.text(".missing")
    assert "NRG 40H" in page.text("main")
    looks_well(page, url)


CAUSES = "[...document.querySelectorAll('.cause')]"


def test_what_needs_attention_is_the_first_card_the_worst_first(chromium: Chromium, url: str) -> None:
    page = chromium.page(1440, 900)
    visit(page, f"{url}/", "What needs attention")
    assert page.run("document.querySelector('.card .title').textContent") == "What needs attention"
    worst, found = (
        page.run(f"{CAUSES}.find(each => each.innerText.startsWith('{severity}')).innerText").split("\n")
        for severity in ("critical", "error")
    )
    severity, mast, what = filter(None, worst)
    assert (severity, mast) == ("critical", HOSTILE)
    assert re.fullmatch(re.escape(HOSTILE) + r" \(since [-0-9]+ [:0-9]+ UTC\)", what)
    assert [each for each in found if each] == ["error", HOSTILE, f"mqtt: {HOSTILE}", HOSTILE]
    assert page.run(f"{CAUSES}[0].querySelector('a').getAttribute('href')") == f"/mast/{quote(HOSTILE)}"
    assert page.run("document.querySelector('main img') === null")
    assert page.run(f"{CAUSES}.length") == 20
    (more,) = page.run(
        "[...document.querySelectorAll('.causes > a')].map(each => each.innerText + ' ' + each.pathname)"
    )
    assert re.fullmatch(r"and \d+ more /alerts", more)
    heads = page.run("[...document.querySelectorAll('th')].map(each => each.textContent)")
    assert [sum(head.startswith(name) for head in heads) for name in ("report", "calibration")] == [1, 1]
    assert "22 found" in page.text("tbody")
    looks_well(page, url)


class Tiles(BaseHTTPRequestHandler):
    """Serves one grey pixel for each tile."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "image/gif")
        self.end_headers()
        self.wfile.write(b"GIF89a\1\0\1\0\x80\0\0\x99\x99\x99\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;")

    def log_message(self, *_: object) -> None:
        pass


def test_sites_are_on_a_map_of_which_only_the_tiles_are_from_elsewhere(
    chromium: Chromium, lake: Path, tmp_path: Path
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Tiles) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tiles = f"http://127.0.0.1:{server.server_port}"
        (tmp_path / "cloud.toml").write_text(
            f'[dashboard]\ntiles = "{tiles}/{{z}}/{{x}}/{{y}}.gif"\ntiles_attribution = "© <b>Example</b>"\n'
        )
        with served(lake, tmp_path / "dashboard.log", "--cloud", str(tmp_path / "cloud.toml")) as url:
            page = chromium.page(1440, 900)
            page.open(f"{url}/")
            page.see(".leaflet-tooltip-pane", lambda text: "mast-03" in text and HOSTILE in text)
            shown = "[...document.querySelectorAll('.leaflet-tile')].some(each => each.naturalWidth)"
            eventually(lambda: page.run(shown), 20)
            assert page.text(".leaflet-control-attribution") == "© Example"
            assert page.run("document.title") == "Fleet · fieldgate"
            circles = "[...document.querySelectorAll('.map path')]"
            colours = page.run(f"{circles}.map(each => each.getAttribute('fill'))")
            assert colours[0] == "#35a06b"
            assert len(colours) == 4
            elsewhere = [at for at in page.requested() if not at.startswith((url, "data:", "about:"))]
            found = [re.fullmatch(rf"{tiles}/(\d+)/\d+/\d+\.gif", at) for at in elsewhere]
            # Of where the masts are, not of the whole world first.
            assert [at for at in found if at is None or int(at[1]) < 5] == []
            assert page.complaints() == []
            page.click(".map path:nth-of-type(2)")
            # All of it: what the server's end cuts off is in its log.
            page.see("main", lambda text: "cup-50m-a.wind_speed over time" in text)
            assert page.run("location.pathname") == "/mast/mast-01"
        server.shutdown()


def test_a_hostile_name_is_a_text_on_every_page(chromium: Chromium, url: str) -> None:
    page = chromium.page(390, 844)
    for path in ("/alerts", "/pipeline", f"/mast/{quote(HOSTILE)}", f"/?state={quote(HOSTILE)}"):
        page.open(f"{url}{path}")
        page.see("main", lambda text: HOSTILE in text)
        assert page.run("document.title").endswith(" · fieldgate")
        assert page.run("document.querySelector('main img') === null")
        if path == "/alerts":
            hrefs = page.run("[...document.querySelectorAll('td a')].map(each => each.getAttribute('href'))")
            assert any(each.startswith(f"/mast/{quote(HOSTILE)}?") for each in hrefs)
        looks_well(page, url)


def test_each_chart_exports_what_it_shows(chromium: Chromium, url: str) -> None:
    page = chromium.page(1440, 900)
    visit(page, f"{url}/mast/mast-01?from=2026-11-19", "over time")
    cards = "[...document.querySelectorAll('.card')].filter(each => each.querySelector('.chart'))"
    named = "each => [each.querySelector('.title').textContent, each.querySelector('a[download]').href]"
    files = {name: get(address)[0] for name, address in page.run(f"{cards}.map({named})")}
    # These masts have no rain gauge; both places show that.
    assert files == dict.fromkeys(files, 200) | {"Rain": 404}
    assert len(files) == 12
    page.run(
        "window.saved = []; HTMLAnchorElement.prototype.click = function () { saved.push([this.download, "
        f"this.href]) }}; {cards}.filter(each => each.querySelector('canvas')).forEach(each => "
        "[...each.querySelectorAll('a')].find(link => link.textContent == 'PNG').dispatchEvent("
        "new MouseEvent('click', {bubbles: true, cancelable: true})))"
    )
    saved = eventually(lambda: page.run("saved"), 20, until=lambda found: len(found) == 11)
    assert all(name.endswith(".png") and len(data) > 5_000 for name, data in saved)
    rose = "mast-01-Wind-rose_2026-11-19_2026-11-21.png"
    assert rose in [name for name, _ in saved]
    assert len({name for name, _ in saved}) == 11
    labels = page.run("[...document.querySelectorAll('.chart')].map(each => each.ariaLabel)")
    assert "mast-01: Wind rose. cup-50m-a.wind_speed, vane-48m.wind_direction, 16 sectors. " in " ".join(
        labels
    )
    assert sum("2026-11-19 00:00 to 2026-11-21 00:00 UTC" in each for each in labels) == 11
    series = ("measured. Weibull A", "power law, α", "90th percentile.")
    assert [sum(part in each for each in labels) for part in series] == [1] * len(series)
    assert {data[:22] for _, data in saved} == {"data:image/png;base64,"}
    looks_well(page, url)


def seen(page: Page) -> int:
    """How many buckets the chart over time has now."""
    chart = "getElement(Number(document.querySelector('.chart.tall').id.slice(1))).chart"
    return int(page.run(f"{chart}.getOption().series[2].data.length"))


def test_a_zoom_refines_and_has_an_address(chromium: Chromium, url: str) -> None:
    page = chromium.page(1440, 900)
    visit(page, f"{url}/mast/mast-01?from=2026-11-18", "over time")
    assert eventually(lambda: seen(page), 20, until=lambda buckets: buckets == 432)
    chart = "getElement(Number(document.querySelector('.chart.tall').id.slice(1))).chart"
    page.run(f"{chart}.dispatchAction({{type: 'dataZoom', start: 50, end: 75}})")
    assert eventually(lambda: seen(page), 20, until=lambda buckets: buckets == 108)
    address = eventually(lambda: page.run("location.search"), 20, until=lambda text: "to=" in text)
    assert "from=2026-11-19T12" in address
    assert "channel=cup-50m-a.wind_speed" in address
    assert "2026-11-19 12:00 to 2026-11-20 06:00" in page.run(
        "document.querySelector('.chart.tall').ariaLabel"
    )
    looks_well(page, url)


def test_a_late_correction_appears_by_itself(chromium: Chromium, url: str, lake: Path) -> None:
    page = chromium.page(1440, 900)
    visit(page, f"{url}/mast/mast-02", "over time")
    before = page.text(".tile .big")
    table = DeltaTable(str(lake / "statistics"))
    table.update(updates={"avg": "avg + 3.0"}, predicate="gateway = 'mast-02'")
    page.see(".tile .big", lambda text: text not in ("", before), deadline_s=20)
    looks_well(page, url)


LINES = "[...document.querySelectorAll('.events .cause')]"
EVENTS = f"{LINES}.map(each => each.innerText.split('\\n').filter(Boolean))"


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_what_happened_is_above_the_chart_and_in_a_list_and_a_move_on_a_map(
    chromium: Chromium, url: str, lake: Path, width: int, height: int
) -> None:
    page = chromium.page(width, height)
    visit(page, f"{url}/mast/mast-02?from=2026-11-19", "Where the mast was")
    page.see(".leaflet-tooltip-pane", lambda text: "planned site" in text)
    shown = page.run(EVENTS)
    at_move = [each for each in shown if each[0].startswith("2026-11-20")]
    assert at_move[0] == [
        "2026-11-20 12:00", "▲ site-moved", "distance_m 900, latitude 28.01, longitude 84.0",
        "Find out who moved it. If it stays there, enter the new position and its day in [site].",
    ]  # fmt: skip
    assert at_move[1] == ["2026-11-20 11:00", HOSTILE, f"problem {HOSTILE}"]
    chart = "getElement(Number(document.querySelector('.chart.tall').id.slice(1))).chart"
    marks = f"{chart}.getOption().series.at(-1).data"
    named = page.run(f"{marks}.map(each => [each.name, each.value[0], each.symbol ?? ''])")
    moved_ms = MOVED.timestamp() * 1000
    at = next(at for at, each in enumerate(named) if each[1] == moved_ms)
    assert named[at][0].startswith("2026-11-20 12:00 site-moved: distance_m 900")
    assert [named[at][2], named[at + 1][2]] == ["triangle", ""]
    # On the axis of the chart below, and its words are a text.
    of_series = f"{chart}.convertToPixel({{seriesIndex: %d}}, [{moved_ms}, 0])[0]"
    last = page.run(f"{chart}.getOption().series.length") - 1
    assert page.run(of_series % last) == pytest.approx(page.run(of_series % 2), abs=0.01)
    page.run(f"{chart}.dispatchAction({{type: 'showTip', seriesIndex: {last}, dataIndex: {at + 1}}})")
    tip = page.see(".chart.tall > div:nth-of-type(2)", lambda text: HOSTILE[:20] in text)
    assert tip.startswith(f"2026-11-20 11:00 {HOSTILE}: problem")
    # Dots of the fixes, the planned site beside them; each with its time, and for a phone's map.
    # Of a week there are dots each 34 minutes: six of fixes, the event, the line, the planned site.
    assert page.run("document.querySelectorAll('.map path').length") == 9
    tips = page.run("[...document.querySelectorAll('.leaflet-tooltip')].map(each => each.innerText)")
    assert tips[0] == "2026-11-20 11:30 GPS"
    assert re.fullmatch("2026-11-20 1[34]:[0-9]{2} GPS", tips[1])
    assert tips[2:] == ["planned site"]
    places = page.run("[...document.querySelectorAll('a[href^=\"geo:\"]')].map(each => each.href)")
    assert "geo:28.010000,84.000000" in places
    assert places[-1].endswith(",84.000000")
    before = len(shown)
    give_event(lake, "reloaded", MOVED + timedelta(minutes=width))
    eventually(lambda: page.run(EVENTS), 20, until=lambda found: len(found) == before + 1)
    eventually(lambda: page.run(f"{marks}.length"), 20, until=lambda count: count == len(named) + 1)
    looks_well(page, url)


FIRST = "[...document.querySelectorAll('tbody tr td:first-child')].map(each => each.textContent.trim())[0]"
GROUND = "getComputedStyle(document.body).backgroundColor"


def test_the_fleets_list_is_in_its_address_and_goes_by_keys(chromium: Chromium, url: str) -> None:
    page = chromium.page(1440, 900)
    visit(page, f"{url}/?find=mast-0&sort=wind&down=1", "mast-03")
    assert HOSTILE not in page.text("tbody")
    # The table says once by itself how it is sorted; a key before that would be undone by it.
    eventually(
        lambda: page.run("location.search"), 20, until=lambda text: text == "?find=mast-0&down=1&sort=wind"
    )
    assert page.run("document.querySelector('[aria-sort=descending]').textContent").startswith("wind, m/s")
    page.press("Tab", 9)
    assert page.run("document.activeElement.textContent") == "To the content"
    assert page.run("document.activeElement.getBoundingClientRect().top") >= 0
    page.run("document.querySelector('th').focus()")
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter", 13)
    eventually(lambda: page.run("location.search"), 20, until=lambda text: text == "?find=mast-0")
    page.see("[aria-sort=ascending]", lambda text: text.startswith("mast"))
    assert page.run("document.activeElement.textContent").startswith("mast")
    page.press("Enter", 13)
    eventually(lambda: page.run("location.search"), 20, until=lambda text: text == "?find=mast-0&down=1")
    assert page.run(FIRST) == "mast-03"
    page.click(".map path:nth-of-type(3)")
    page.see("main", lambda text: "over time" in text)
    assert page.run("location.pathname") == "/mast/mast-02"
    looks_well(page, url)


def test_dark_follows_the_machine_until_it_is_chosen(chromium: Chromium, url: str) -> None:
    page = chromium.page(390, 844)
    for scheme, ground in (("dark", "rgb(16, 22, 28)"), ("light", "rgb(243, 245, 248)")):
        page.prefer(scheme)
        page.open(f"{url}/alerts")
        page.see("main", lambda text: HOSTILE in text)
        assert eventually(lambda: page.run(GROUND), 20, until=lambda shown: shown == ground)  # noqa: B023
        assert page.run("document.querySelector('[aria-level=\"1\"]').textContent") == "Alerts"
    page.set_cookie(url, "dark", "1")
    page.open(f"{url}/alerts")
    assert eventually(lambda: page.run(GROUND), 20, until=lambda shown: shown == "rgb(16, 22, 28)")
    looks_well(page, url)


BANDS = "getOption().series[2].markArea.data.map((band) => band[0].name)"


def test_a_period_is_marked_shaded_left_out_and_taken_back(chromium: Chromium, url: str, lake: Path) -> None:
    page = chromium.page(1440, 900)
    visit(page, f"{url}/mast/mast-01?from=2026-11-19T00:00&to=2026-11-20T00:00", "No marks.")
    chart = "getElement(Number(document.querySelector('.chart.tall').id.slice(1))).chart"
    page.run(f"{chart}.dispatchAction({{type: 'dataZoom', start: 25, end: 50}})")
    eventually(lambda: page.run("location.search"), 20, until=lambda text: "T06" in text)
    press(page, "Mark a period …")
    fill(page, "Reason", "iced <b>")
    press(page, "Mark")
    page.see("main", lambda text: "2026-11-19 06:00 to 2026-11-19 12:00" in text and "iced <b>" in text, 20)
    assert eventually(lambda: page.run(f"{chart}.{BANDS}"), 20, until=bool) == ["iced <b>"]
    (mark,) = marks({"lake": (str(lake), None)})
    assert (mark.gateway, mark.channel, mark.author) == ("mast-01", "cup-50m-a.wind_speed", getpass.getuser())
    begin = "from=2026-11-19T00:00&to=2026-11-20T00:00"
    for end, left in (("", 144), ("&marks=without", 108)):
        rows = get(f"{url}/csv/mast/mast-01/series?{begin}{end}")[1].splitlines()[1:]
        assert sum(row.split(",")[1] != "" for row in rows) == left
    visit(page, f"{url}/mast/mast-01?{begin}&marks=without", "iced <b>")
    press(page, "Withdraw …")
    fill(page, "Reason", "it was not")
    press(page, "Withdraw")
    page.see("main", lambda text: "No marks." in text, 20)
    looks_well(page, url)


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_csv_pages_and_what_is_refused(url: str) -> None:
    status, text = get(f"{url}/csv/mast/mast-01/series?from=2026-11-20")
    assert (status, len(text.splitlines())) == (200, 145)
    assert text.splitlines()[1].startswith("2026-11-20T00:00:00Z,")
    assert get(f"{url}/csv/mast/mast-01/wind-rose")[1].startswith(
        "sector,from_mps,intervals,share,mean_speed\n"
    )
    assert get(f"{url}/csv/fleet")[1].count("\n") == 5
    assert get(f"{url}/csv/mast/mast-01/no-such")[0] == 404
    assert "No statistics of nobody" in get(f"{url}/mast/nobody")[1]
    assert "Quarantine" in get(f"{url}/pipeline")[1]
    assert "Open alerts" in get(f"{url}/alerts")[1]
    assert get(f"{url}/healthz") == (200, "ok\n")
    assert get(f"{url}/", Host="evil.example:80")[0] == 403
    assert get(f"{url}/", Origin="http://evil.example")[0] == 403
    assert get(f"{url}/", Origin=url)[0] == 200
    # Marks go through the pages' socket, which another site's page can't open.
    socket_of_pages = f"{url}/_nicegui_ws/socket.io/?EIO=4&transport="
    assert get(f"{socket_of_pages}polling", Origin="http://evil.example")[0] == 403
    upgrade = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": f"{'A' * 22}=="}
    assert get(f"{socket_of_pages}websocket", Origin="http://evil.example", **upgrade)[0] == 403


@pytest.mark.parametrize(
    ("listen", "problem"),
    [
        ("0.0.0.0:8090", "ssh -L 8090:127.0.0.1:8090 THIS-MACHINE"),
        ("mast.example:8090", "only this machine may open them"),
        ("8090", "no HOST:PORT such as 127.0.0.1:8090"),
    ],
)
def test_only_this_machine_may_look(listen: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--lake", "./no-lake", "--listen", listen]) == 1
    assert problem in capsys.readouterr().err


def test_a_port_that_is_taken_and_a_lake_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(["--lake", "./no-lake", "--listen", at]) == 1
    assert f"--listen {at}: Address already in use; give another port" in capsys.readouterr().err
    assert run(["--lake", "./no-lake", "--listen", f"127.0.0.1:{free_port()}"]) == 1
    assert "no lake at ./no-lake" in capsys.readouterr().err
