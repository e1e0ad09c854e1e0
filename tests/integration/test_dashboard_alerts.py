"""Alerts are acknowledged in a real Chromium, from each page, by who may; raised anew they are back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from spark_jobs.platform import schemas
from tests.integration.test_dashboard_commands import fill, press
from tests.integration.test_dashboard_login import PASSWORD, Visitor, hashed, served
from tests.support.browser import Chromium, Page
from tests.support.fleet_lake import write, write_fleet
from tests.support.servers import eventually


def raise_alert(lake: Path, name: str, gateway: str, severity: str) -> None:
    at = datetime.now(UTC) - timedelta(hours=2)
    row = {"id": name, "gateway": gateway, "rule": "silent", "severity": severity, "raised_at": at,
           "historical": False, "detail": f"{gateway}: nothing since noon"}  # fmt: skip
    write(lake, schemas.ALERTS, {key: [value] for key, value in row.items()})


def order(page: Page) -> list[str]:
    """The masts of the card in its order, those that are greyed with a mark."""
    lines = "[...document.querySelectorAll('.cause')]"
    shown = f"{lines}.map(each => each.querySelector('a').innerText + (each.matches('.seen') ? ' seen' : ''))"
    return list(page.run(shown))


def test_from_the_card_and_from_the_list(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_fleet(lake, 1, 1, end=datetime.now(UTC).replace(minute=0, second=0, microsecond=0))
    raise_alert(lake, "a1", "mast-01", "critical")
    raise_alert(lake, "b1", "mast-02", "warning")
    line = hashed(PASSWORD)
    (tmp_path / "cloud.toml").write_text(
        f'[lake]\npath = "lake"\n[dashboard.users.olga]\nacknowledge = true\n{line}'
        f"[dashboard.users.anna]\n{line}"
    )
    with served(tmp_path, "cloud.toml", "127.0.0.1") as port, Chromium(tmp_path / "profile") as browser:
        anna = Visitor(port)
        anna.log_in("anna")
        for path in ("/", "/alerts", "/mast/mast-01"):
            text = anna.ask(path).text
            assert "mast-01" in text
            assert "Acknowledge" not in text
        page = browser.page(1440, 900)
        page.open(f"http://127.0.0.1:{port}/")
        page.see("form", lambda text: "Password" in text)
        fill_in = "document.querySelector('[name={}]').value = {!r};"
        page.run(fill_in.format("user", "olga") + fill_in.format("password", PASSWORD))
        page.run("document.querySelector('form').submit()")
        page.see("main", lambda text: "What needs attention" in text)
        assert order(page) == ["mast-01", "mast-02"]
        press(page, "Acknowledge …")
        fill(page, "For", "soon")
        press(page, "Acknowledge")
        page.see("main", lambda text: "'soon' is not a duration" in text)
        # It goes with its text, which would be typed into.
        eventually(lambda: page.run("document.querySelector('.q-dialog') === null"), 20)
        press(page, "Acknowledge …")
        fill(page, "For", "2h")
        fill(page, "Note", "on my way <b>")
        press(page, "Acknowledge")
        eventually(lambda: order(page), 20, until=lambda shown: shown == ["mast-02", "mast-01 seen"])
        assert "acknowledged by olga, " in page.text(".seen")
        assert page.text(".seen").endswith(": on my way <b>")
        # Raised anew it is another alert, which nobody has seen.
        raise_alert(lake, "a2", "mast-01", "critical")
        eventually(
            lambda: order(page), 20, until=lambda shown: shown == ["mast-01", "mast-02", "mast-01 seen"]
        )

        page.open(f"http://127.0.0.1:{port}/alerts")
        page.see("main", lambda text: "on my way <b>" in text)
        press(page, "Acknowledge …")
        page.see("main", lambda text: "Tick the alerts first." in text)
        page.run("document.querySelector('thead .q-checkbox').click()")
        press(page, "Acknowledge …")
        page.see(".q-dialog", lambda text: "3 alerts" in text)
        press(page, "Acknowledge")
        page.see("main", lambda text: "Acknowledged: 3 alerts." in text)
        page.see("tbody", lambda text: text.count("olga, ") == 3, 20)
        assert page.complaints() == []
        page.open(f"http://127.0.0.1:{port}/")
        page.see("main", lambda text: "What needs attention" in text)
        assert order(page) == ["mast-01 seen", "mast-02 seen"]
        assert page.run("document.documentElement.scrollWidth <= innerWidth")

        raise_alert(lake, "a3", "mast-01", "warning")
        page.open(f"http://127.0.0.1:{port}/mast/mast-01")
        # The pages look at the lake each two seconds: the newest alert is the first row once it is there.
        page.see("main", lambda text: text.count("olga, ") == 2 and "warning" in text)
        page.run("[...document.querySelectorAll('tbody .q-checkbox')][0].click()")
        press(page, "Acknowledge …")
        page.see(".q-dialog", lambda text: "1 alert" in text)
        press(page, "Acknowledge")
        page.see("main", lambda text: "Acknowledged: 1 alert." in text)
        page.see("main", lambda text: text.count("olga, ") == 3)
        assert page.complaints() == []
    rows = DeltaTable(str(lake / "acknowledgements")).to_pyarrow_table().to_pylist()
    assert sorted((row["alert"], row["author"], row["note"]) for row in rows) == [
        ("a1", "olga", ""), ("a1", "olga", "on my way <b>"),
        *((name, "olga", "") for name in ("a2", "a3", "b1")),
    ]  # fmt: skip
