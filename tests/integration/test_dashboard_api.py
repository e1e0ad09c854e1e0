"""Programs that read a dashboard's API: a real server by its command, tokens by theirs, HTTP."""

from __future__ import annotations

import io
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pandas as pd
import psutil
import pytest
from deltalake import DeltaTable

from cloud.lake.cleaning import Mark, add
from tests.integration.test_dashboard_login import PASSWORD, Visitor, hashed, served
from tests.support.fleet_lake import write_fleet
from tests.support.servers import eventually

END = datetime(2026, 11, 21, tzinfo=UTC)
STATISTICS = "/statistics?mast=mast-02"


def token(place: Path, *arguments: str) -> str:
    command = (sys.executable, "-m", "gateway.cli", "token", *arguments, "--cloud", str(place / "cloud.toml"))
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("api")
    write_fleet(root / "lake", 3, 2, end=END)
    begin = END - timedelta(hours=3)
    mark = Mark("mast-02", "*", begin, begin + timedelta(hours=1), "iced", "anna", END)
    add({"lake": (str(root / "lake"), None)}, [mark])
    line = hashed(PASSWORD)
    (root / "cloud.toml").write_text(
        f'[lake]\npath = "lake"\n[dashboard]\ntokens = "tokens.db"\n[dashboard.users.olga]\n{line}\n'
        f'[dashboard.users.anna]\ngateways = ["*-02", "elsewhere"]\n{line}\n'
    )
    return root


@pytest.fixture(scope="module")
def port(place: Path) -> Iterator[int]:
    with served(place, "cloud.toml", "127.0.0.1") as found:
        yield found


Api = Callable[[str], httpx.Client]


@pytest.fixture
def api(port: int) -> Iterator[Api]:
    made: list[httpx.Client] = []

    def client(bearer: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {bearer}"}
        made.append(httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers, timeout=60))
        return made[-1]

    yield client
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def annas(place: Path) -> str:
    return token(place, "add", "anna")


def problem(answer: httpx.Response, status: int) -> dict[str, object]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    found = answer.json()
    assert isinstance(found, dict)
    assert found["status"] == status
    assert found["remedy"]
    return found


def test_a_token_counts_until_it_is_revoked_or_expires_and_has_its_users_masts(
    place: Path, port: int, api: Api
) -> None:
    made = token(place, "add", "anna", "--days", "1", "--note", "notebook")
    name, user, state, *_, note = token(place, "list").splitlines()[0].split()
    assert (user, state, note) == ("anna", "until", "notebook")
    assert made.encode() not in (place / "tokens.db").read_bytes()
    anna = api(made)
    assert [each["gateway"] for each in anna.get("/masts").json()] == ["mast-02"]
    assert [each["gateway"] for each in api(token(place, "add", "olga")).get("/masts").json()] == [
        "mast-01", "mast-02", "mast-03",
    ]  # fmt: skip
    others, unknown = (anna.get(f"/statistics?mast={mast}") for mast in ("mast-01", "mast-99"))
    assert problem(others, 404) | {"detail": 0, "value": 0} == problem(unknown, 404) | {
        "detail": 0,
        "value": 0,
    }
    assert {each["gateway"] for each in anna.get("/channels").json()} == {"mast-02"}
    # The token opens the API alone.
    csv = httpx.get(f"http://127.0.0.1:{port}/csv/fleet", headers=anna.headers)
    assert csv.status_code == 401
    for wrong in (made[:-1], "x", "fieldgate_"):
        refused = api(wrong).get("/masts")
        assert "unknown, expired or revoked" in str(problem(refused, 401)["detail"])
        assert refused.headers["www-authenticate"] == "Bearer"
    assert token(place, "revoke", name) == f"{name} is revoked"
    assert problem(anna.get("/masts"), 401)
    with sqlite3.connect(place / "tokens.db") as tokens:
        old = token(place, "add", "anna")
        assert api(old).get("/masts").status_code == 200
        tokens.execute("UPDATE token SET expires_s = ? WHERE user = 'anna'", (time.time() - 1,))
        tokens.commit()
        assert problem(api(old).get("/masts"), 401)
        tokens.execute("UPDATE token SET expires_s = ? WHERE user = 'anna'", (time.time() + 86_400,))
    kept = (place / "tokens.db").read_bytes()
    (place / "tokens.db").write_bytes(b"no database" * 1000)
    assert "fieldgate token list" in str(problem(api(old).get("/masts"), 503)["remedy"])
    (place / "tokens.db").write_bytes(kept)
    visitor = Visitor(port)
    assert visitor.ask("/api/v1/masts").status == 401
    visitor.log_in("anna")
    assert visitor.ask("/api/v1/masts").status == 200


def test_pandas_reads_every_form(annas: str, api: Api) -> None:
    anna = api(annas)
    asked = f"{STATISTICS}&limit=100000"
    frames = [
        pd.read_csv(io.BytesIO(anna.get(f"{asked}&format=csv").content), parse_dates=["interval_start"]),
        pd.read_json(io.BytesIO(anna.get(asked).content)),
        pd.read_parquet(io.BytesIO(anna.get(f"{asked}&format=parquet").content)),
        pd.read_feather(io.BytesIO(anna.get(f"{asked}&format=arrow").content)),
    ]
    for frame in frames:
        assert len(frame) == 3456
        assert frame["avg"].sum() == pytest.approx(frames[0]["avg"].sum())
        assert pd.Timestamp(frame["interval_start"].min()) == pd.Timestamp("2026-11-19", tz="UTC")
    by_accept = anna.get(STATISTICS, headers={"Accept": "text/html, text/csv;q=0.9"})
    assert by_accept.headers["content-type"] == "text/csv; charset=utf-8"
    assert len(pd.read_csv(io.BytesIO(anna.get(f"{asked}&format=csv&cleaned=true").content))) == 3456 - 12 * 6
    wide = anna.get(f"{STATISTICS}&shape=wide&format=csv&columns=avg,sd&channel=baro.pressure&cleaned=true")
    found = pd.read_csv(io.BytesIO(wide.content), index_col=0, parse_dates=True)
    assert (found.index.name, list(found)) == ("Timestamp", ["baro.pressure_avg", "baro.pressure_sd"])
    assert len(found) == 288 - 6
    zone = anna.get(f"{STATISTICS}&from=2026-11-20T05:45%2B05:45&to=2026-11-20T00:10Z&columns=interval_start")
    assert {each["interval_start"] for each in zone.json()} == {"2026-11-20T00:00:00.000000Z"}


def test_pages_follow_the_link_while_others_append_and_what_is_unchanged_is_304(
    place: Path, annas: str, api: Api
) -> None:
    anna, table = api(annas), DeltaTable(str(place / "lake" / "statistics"))
    before = table.to_pandas()
    answer = anna.get(f"{STATISTICS}&limit=700&format=parquet")
    tag = {"If-None-Match": answer.headers["etag"]}
    assert anna.get(f"{STATISTICS}&limit=700&format=parquet", headers=tag).status_code == 304
    assert anna.get(f"{STATISTICS}&limit=700&format=csv", headers=tag).status_code == 200
    assert anna.get(f"{STATISTICS}&limit=700&format=parquet&to=2026-11-20", headers=tag).status_code == 200
    found = [pd.read_parquet(io.BytesIO(answer.content))]
    while "next" in answer.links:
        write_fleet(place / "lake", 3, 2, end=END + timedelta(days=2 * len(found)))
        answer = anna.get(answer.links["next"]["url"])
        found.append(pd.read_parquet(io.BytesIO(answer.content)))
    rows = pd.concat(found)
    mine = before.query("gateway == 'mast-02'")
    assert len(rows) == len(mine) == 3456
    assert set(zip(rows["channel"], rows["interval_start"], strict=True)) == set(
        zip(mine["channel"], mine["interval_start"], strict=True)
    )
    # The server looks at versions every two seconds; from here on nobody writes.
    table.update_incremental()
    whole = len(table.to_pandas().query("gateway == 'mast-02'"))
    eventually(
        lambda: len(anna.get(f"{STATISTICS}&columns=avg&limit=100000").json()), 20,
        until=lambda count: count == whole,
    )  # fmt: skip
    assert anna.get(f"{STATISTICS}&limit=700&format=parquet", headers=tag).status_code == 200
    # A cleaning log that begins between two pages isn't the first one's. What is unchanged isn't read, and so
    # shows when the server has looked again.
    cleaned = f"{STATISTICS}&cleaned=true&limit=700"

    def changed(since: httpx.Response) -> httpx.Response:
        held = {"If-None-Match": since.headers["etag"]}
        return eventually(
            lambda: anna.get(cleaned, headers=held), 20, until=lambda answer: answer.status_code == 200
        )

    with_log = anna.get(cleaned)
    log = (place / "lake" / "cleaning").rename(place / "cleaning")
    first = changed(with_log)
    log.rename(place / "lake" / "cleaning")
    changed(first)
    assert len(anna.get(first.links["next"]["url"]).json()) == 700
    wrong = answer.url.copy_set_param("mast", "elsewhere")
    assert problem(anna.get(wrong), 400)["parameter"] == "cursor"


@pytest.mark.parametrize(
    ("asked", "status", "parameter", "remedy"),
    [
        ("/statistics", 400, "mast", "a mast's name"),
        ("/statistics?mats=mast-02&mast=mast-02", 400, "mats", "Did you mean mast?"),
        (f"{STATISTICS}&limit=0", 400, "limit", "up to 100000"),
        (f"{STATISTICS}&format=xls", 400, "format", "Accept"),
        (f"{STATISTICS}&from=yesterday", 400, "from", "ISO 8601"),
        (f"{STATISTICS}&from=99999-01-01", 400, "from", "ISO 8601"),
        (f"{STATISTICS}&columns=avg,%22;DROP%20TABLE%20statistics", 400, "columns", "interval_start"),
        (f"{STATISTICS}&columns={'a' * 2000}", 400, "columns", "interval_start"),
        (f"{STATISTICS}&channel=bario.pressure", 404, "channel", "Did you mean baro.pressure?"),
        (f"{STATISTICS}&cursor=WyJhIiwge30sIFtdXQ==", 400, "cursor", "Link"),
        (f"{STATISTICS}&cursor=%00", 400, "cursor", "Link"),
        (f"{STATISTICS}&shape=wide&columns=avg,n_good", 400, "columns", "gust"),
        (f"{STATISTICS}&shape=wide&interval=3600", 404, "interval", "There are 600."),
        ("/statistics?mast=mast-02'%20OR%20''='", 404, "mast", "/api/v1/masts"),
        ("/statistics?mast=..%2F..%2Fetc%2Fpasswd", 404, "mast", "/api/v1/masts"),
        ("/statistics?mast=*", 404, "mast", "/api/v1/masts"),
        ("/statistics?mast=", 404, "mast", "/api/v1/masts"),
        ("/readings?mast=mast-02", 404, None, "operator"),
        ("/..%2F..%2Fetc%2Fpasswd", 404, None, "openapi.json"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(
    annas: str, api: Api, asked: str, status: int, parameter: str | None, remedy: str
) -> None:
    found = problem(api(annas).get(asked), status)
    assert found.get("parameter") == parameter
    assert remedy in str(found["remedy"])


def test_a_hostile_name_is_a_value_and_a_huge_time_is_a_page(annas: str, api: Api) -> None:
    anna = api(annas)
    names = "&".join(f"channel=x{number}'%22)--" for number in range(1000))
    assert (
        anna.get(f"{STATISTICS}&{names}&channel=baro.pressure&limit=1").json()[0]["channel"]
        == "baro.pressure"
    )
    huge = anna.get(f"{STATISTICS}&from=0001-01-01&to=9999-12-31&limit=5")
    assert len(huge.json()) == 5
    assert problem(anna.post("/statistics"), 405)


def test_fifty_clients_at_once_and_one_of_too_many_is_told_when_to_return(
    place: Path, port: int, annas: str, api: Api
) -> None:
    anna, olga = api(annas), api(token(place, "add", "olga"))
    server = next(each for each in psutil.Process().children() if f"127.0.0.1:{port}" in each.cmdline())
    before = server.memory_info().rss
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda _: anna.get(f"{STATISTICS}&limit=1000&format=csv"), range(50)))
    assert {each.status_code for each in found} == {200}
    assert len({each.content for each in found}) == 1
    assert server.memory_info().rss - before < 700e6
    slow = httpx.Limits(max_connections=200)
    with (
        httpx.Client(base_url=anna.base_url, headers=anna.headers, timeout=60, limits=slow) as crowd,
        ThreadPoolExecutor(90) as pool,
    ):
        many = [pool.submit(crowd.get, f"{STATISTICS}&limit=100000") for _ in range(90)]
        # Others have their turn meanwhile.
        assert olga.get("/statistics?mast=mast-01&limit=10").status_code == 200
        answers = [each.result() for each in many]
    refused = [each for each in answers if each.status_code != 200]
    # On a busy machine no turn comes in time to some.
    assert {(each.status_code, each.headers["retry-after"]) for each in refused} <= {(429, "5"), (503, "30")}
    # Clients that leave before the end leave no file open.
    for _ in range(8):
        with anna.stream("GET", f"{STATISTICS}&limit=100000") as answer:
            next(answer.iter_raw())
    eventually(lambda: [each for each in server.open_files() if "fieldgate-api-" in each.path], until=lambda
               found: not found)  # fmt: skip


def test_a_client_that_reads_nothing_is_cut_off(
    place: Path, port: int, annas: str, api: Api, full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: it waits for 30 s; tests/unit/cloud/dashboard/test_cut_off.py")
    server = next(each for each in psutil.Process().children() if f"127.0.0.1:{port}" in each.cmdline())
    # Two days are no more than the kernel takes.
    write_fleet(place / "lake", 3, 12, end=END - timedelta(days=3))
    asked = f"{STATISTICS}&limit=100000&columns=version"
    eventually(lambda: len(api(annas).get(asked).json()), 20, until=lambda count: count > 20_000)
    begun = time.monotonic()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(f"GET /api/v1{STATISTICS}&limit=100000 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                       f"Authorization: Bearer {annas}\r\n\r\n".encode())  # fmt: skip
        mine = client.getsockname()

        def is_served() -> bool:
            return any(each.raddr == mine for each in server.net_connections("tcp"))

        eventually(is_served, 20)
        eventually(is_served, 60, until=lambda served: not served)
    assert time.monotonic() - begun > 25


def test_openapi_says_what_there_is_and_nothing_comes_from_elsewhere(annas: str, api: Api) -> None:
    anna = api(annas)
    described = anna.get("/openapi.json").json()
    assert set(described["paths"]) == {
        f"/{name}"
        for name in ("masts", "channels", "readings", "statistics", "mast", "alerts", "events", "quality")
    }
    names = {each["name"]: each for each in described["paths"]["/statistics"]["get"]["parameters"]}
    assert {"mast", "channel", "from", "to", "interval", "columns", "cleaned", "shape", "limit", "cursor",
            "format"} == set(names)  # fmt: skip
    assert names["mast"]["required"]
    assert [anna.get(path).status_code for path in ("/docs", "/redoc")] == [404, 404]


def test_without_users_it_is_this_machines_and_no_other_sites(place: Path) -> None:
    (place / "open.toml").write_text('[lake]\npath = "lake"\n')
    with served(place, "open.toml", "127.0.0.1") as found:
        address = f"http://127.0.0.1:{found}/api/v1/alerts?format=csv"
        assert httpx.get(address).text.startswith("id,rule,")
        assert httpx.get(address, headers={"Host": "evil.example"}).status_code == 403
