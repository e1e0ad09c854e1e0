"""How soon the dashboard's pages can be used in a real Chromium, and what memory they leave.

    python -m tests.bench.pages --fleets 100x30 1000x1

Prints rows for docs/performance.md: medians for each fleet (masts x days of statistics) and screen. The lakes
are made here and compacted; Kafka isn't read.

A page is *interactive* once its socket is connected (before that no click arrives), every chart that is to be
seen has its series and a canvas, the fleet's list has its rows (cards on a phone), and the frame after that
has begun: seconds since the browser left for it, by its own clock. *Cold* is the first load after the process
has started, in a browser that has none of the files; *warm* the same page again. A mast's page is new to the
process, *again* isn't. A zoom lasts from the chart's action to the finer points, a correction from its
commit's time in the table's log to the number on the screen. Then many loads follow, up to five pages open at
a time, each fourth left or closed before it is done: memory is the RSS of the dashboard's process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

import psutil
from deltalake import DeltaTable

from tests.bench.figures import peak_rss_mib
from tests.integration.test_dashboard_login import PASSWORD, Visitor, hashed, served
from tests.support.browser import Chromium, Page
from tests.support.servers import eventually

SCREENS: Final = ((1440, 900), (390, 844))
GOALS_S: Final = {
    "fleet, cold": 1.0, "fleet, warm": 0.5, "mast": 1.5, "mast, again": 1.5, "zoom": 0.5, "correction": 10.0,
}  # fmt: skip
_LOAD_S: Final = 30.0
_CUT_AFTER_S: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
_READY: Final = """(() => {
    const part = location.pathname.split('/')[1];
    const count = (selector) => document.querySelectorAll(selector).length;
    const drawn = (least) => {
        const charts = [...document.querySelectorAll('.chart')].filter((each) => each.offsetParent);
        return charts.length >= least && charts.every((each) => each.querySelector('canvas')
            && getElement(Number(each.id.slice(1))).chart.getModel()?.getSeriesCount());
    };
    const ready = {
        '': () => count('.q-table tbody tr, a.channel') >= ROWS && drawn(1),
        mast: () => count('a.channel') > 0 && drawn(8),
        lists: () => count('.lists .card') > 0,
    }[{alerts: 'lists', pipeline: 'lists'}[part] ?? part];
    const done = () => { window.interactive_ms = performance.now(); };
    const look = () => requestAnimationFrame(
        window.did_handshake && window.socket?.connected && ready() ? done : look);
    if (ready && location.protocol.startsWith('http')) look();
})()"""
_ZOOM: Final = f"""new Promise((resolve, reject) => {{
    const chart = getElement(Number(document.querySelector('.chart.tall').id.slice(1))).chart;
    const points = () => chart.getModel().getSeriesByIndex(2).getData().count();
    const before = points(), begun = performance.now();
    const look = () => {{
        if (performance.now() - begun > 1000 * {_LOAD_S}) return reject(new Error('no finer points'));
        requestAnimationFrame(points() === before ? look : () => resolve(performance.now() - begun));
    }};
    chart.dispatchAction({{type: 'dataZoom', start: 50, end: 75}});
    look();
}})"""


class Visits:
    """Pages of one browser on one fleet's dashboard, and what they complained of."""

    def __init__(self, browser: Chromium, url: str, masts: int, cookie: str, complaints: list[str]) -> None:
        self._browser, self._url, self._cookie, self.complaints = browser, url, cookie, complaints
        self._script = _READY.replace("ROWS", str(min(masts, 25)))
        self._open: deque[Page] = deque()

    def page(self, screen: tuple[int, int]) -> Page:
        """A page in a browser that has nothing of the site but the login."""
        page = self._browser.page(*screen)
        page.before_each(self._script)
        if self._cookie:
            page.set_cookie(self._url, *self._cookie.split("=", 1))
        if len(self._open) == 5:
            self.close(self._open[0])
        self._open.append(page)
        return page

    def close(self, page: Page) -> None:
        self.collect()
        self._open.remove(page)
        page.close()

    def load(self, page: Page, path: str) -> float:
        """Seconds until it is interactive."""
        page.open("about:blank")
        # A browser that is told to leave before it is there answers neither.
        eventually(lambda: page.run("location.href"), _LOAD_S, until="about:blank".__eq__, poll_s=0.02)
        page.open(self._url + path)
        ms = eventually(lambda: page.run("window.interactive_ms"), _LOAD_S, poll_s=0.02)
        self.collect()
        return float(ms) / 1000

    def cut_off(self, page: Page, path: str, number: int) -> None:
        """Leaves for a page, and again before it is there."""
        page.run(f"setTimeout(() => {{ location = {self._url + path!r} }})")
        time.sleep(_CUT_AFTER_S[number % len(_CUT_AFTER_S)])
        self.close(page) if number % 2 else page.open("about:blank")

    def collect(self) -> None:
        """Keeps what the consoles say and who else was asked; the browser's list of events is bounded."""
        for page in self._open:
            ours = (self._url, "data:", "blob:", "about:")
            asked = [f"asked {each}" for each in page.requested() if not each.startswith(ours)]
            self.complaints += page.complaints() + asked
        self._browser.events.clear()


@contextmanager
def dashboard(
    place: Path, masts: int, browser: Chromium, users: bool, complaints: list[str]
) -> Iterator[tuple[Visits, int]]:
    """Visits to a process of their own over the lake of this place, and its id."""
    user = f"[dashboard.users.olga]\n{hashed(PASSWORD)}" if users else ""
    (place / "cloud.toml").write_text(f'[lake]\npath = "lake"\n{user}')
    with served(place, "cloud.toml", "127.0.0.1", quiet=False) as port:
        visitor = Visitor(port)
        _ = users and visitor.log_in("olga")
        here = f"127.0.0.1:{port}"
        pid = next(each.pid for each in psutil.Process().children() if here in each.cmdline())
        yield Visits(browser, f"http://{here}", masts, visitor.cookie, complaints), pid


def correct(page: Page, lake: Path) -> float:
    """Seconds from a correction's commit until the page shows it."""
    before = page.text(".tile .big")
    table = DeltaTable(str(lake / "statistics"))
    first = sorted(str(each["date"]) for each in table.partitions())[-2]
    table.update(updates={"avg": "avg + 3.0"}, predicate=f"gateway = 'mast-02' AND date >= '{first}'")
    page.see(".tile .big", lambda text: text not in ("", before), _LOAD_S)
    return time.time() - max((lake / "statistics" / "_delta_log").glob("*.json")).stat().st_mtime


def one_round(visits: Visits, screen: tuple[int, int], lake: Path, found: dict[str, list[float]]) -> None:
    """Each figure once; the process has just been started."""
    page = visits.page(screen)
    paths = {"fleet, cold": "/", "fleet, warm": "/", "mast": "/mast/mast-02", "mast, again": "/mast/mast-02"}
    for name, path in paths.items():
        found[name].append(visits.load(page, path))
    found["zoom"].append(float(page.run(_ZOOM)) / 1000)
    found["correction"].append(correct(page, lake))
    visits.close(page)


def many(visits: Visits, masts: int, loads: int) -> int:
    """Loads of all kinds, each fourth cut off; how many were made within fifteen minutes."""
    end_s = time.monotonic() + 900
    for number in range(loads):
        if time.monotonic() > end_s:
            return number
        paths = ("/", f"/mast/mast-{number % masts + 1:02d}", "/alerts", "/mast/mast-02", "/pipeline")
        path, page = paths[number % len(paths)], visits.page(SCREENS[number // 2 % 2])
        try:
            visits.cut_off(page, path, number // 4) if number % 4 == 3 else visits.load(page, path)
        except AssertionError as error:
            visits.complaints.append(f"{path}: {error}")
    return loads


def make(lake: Path, masts: int, days: int) -> None:
    """A fleet's lake up to now; in a process of its own, which takes its gigabyte along."""
    program = f"{sys.executable} -m tests.support.fleet_lake {lake} --masts {masts} --days {days}"
    subprocess.run(program.split(), check=True)
    for name in ("statistics", "mast"):
        DeltaTable(str(lake / name)).optimize.compact()


def main() -> None:
    parser = argparse.ArgumentParser(description="what the dashboard's pages cost")
    parser.add_argument("--fleets", nargs="+", default=["100x30", "1000x1"], metavar="MASTSxDAYS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loads", type=int, default=200, help="of which a quarter is cut off")
    parser.add_argument("--users", action="store_true", help="log in")
    given = parser.parse_args()
    columns: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    others = [f"| load average before | {os.getloadavg()[0]:.1f} | |"]
    with tempfile.TemporaryDirectory() as made, Chromium(Path(made, "profile")) as browser:
        for fleet in given.fleets:
            (masts, days), place = map(int, fleet.split("x")), Path(made, fleet)
            make(place / "lake", masts, days)
            complaints: list[str] = []
            for screen, _ in product(SCREENS, range(given.rounds)):
                found = columns[f"{masts:,} × {days} d, {screen[0]} × {screen[1]}"]
                with dashboard(place, masts, browser, given.users, complaints) as (visits, _):
                    one_round(visits, screen, place / "lake", found)
            with dashboard(place, masts, browser, given.users, complaints) as (visits, pid):
                count = many(visits, masts, given.loads)
                visits.collect()
                rss, most = psutil.Process(pid).memory_info().rss / 1e6, peak_rss_mib(pid) * 1.048576
                what = f"{masts:,} × {days} d: memory after {count} loads, {count // 4} cut off"
                others.append(f"| {what} | {rss:.0f} MB, at most {most:.0f} | ≤ 450 |")
            others.append(f"| complaints of the console, requests off the machine | {len(complaints)} | 0 |")
            sys.stderr.writelines(f"{each[:300]}\n" for each in sorted(set(complaints)))
    sys.stdout.write(f"| seconds | {' | '.join(columns)} | goal |\n|{'---|' * (len(columns) + 2)}\n")
    for name, goal in GOALS_S.items():
        cells = " | ".join(f"{median(found[name]):.2f}" for found in columns.values())
        sys.stdout.write(f"| {name} | {cells} | ≤ {goal} |\n")
    sys.stdout.write(f"\n| | | goal |\n|---|---|---|\n{chr(10).join(others)}\n")


if __name__ == "__main__":
    main()
