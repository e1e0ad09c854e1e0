"""``fieldgate phone``: the way there as an installer sees it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import segno

from gateway import cli
from gateway.commands import phone
from gateway.commands.phone import lines as shown_lines, qr_lines
from gateway.system.host import Interface, reachable

ANSWER: dict[str, Any] = {"url": "http://192.168.4.1:8321/", "token": "k7mq2fxa9tpehw3d", "seconds": 3600.0}
LINK = "http://192.168.4.1:8321/?t=k7mq2fxa9tpehw3d"


def test_the_code_holds_the_link() -> None:
    lines = qr_lines(LINK)
    widths = {len(line) for line in lines}
    # Version 3, 29 modules, two light ones around: it fits a window of 80 by 24.
    assert (widths, len(lines)) == ({33}, 17)
    pairs = {"█": (0, 0), "▄": (1, 0), "▀": (0, 1), " ": (1, 1)}
    rows = [row for line in lines for row in zip(*(pairs[char] for char in line), strict=True)]
    matrix = segno.make(LINK, error="l", micro=False).matrix
    assert [row[2:-2] for row in rows[2:31]] == [tuple(row) for row in matrix]
    assert not any(map(any, (rows[0], rows[1], *rows[31:33])))


def test_the_likeliest_network_comes_first() -> None:
    found = [
        Interface("lo", "127.0.0.1"),
        Interface("docker0", "172.17.0.1"),
        Interface("eth0", "10.0.0.7"),
        Interface("wwan0", "100.64.1.2"),
        Interface("ppp0", "100.64.1.3", point_to_point=True),
        Interface("wlan0", "192.168.4.1"),
    ]
    assert [each.name for each in reachable(found)] == ["wlan0", "eth0"]
    assert reachable([]) == []


def test_what_an_installer_reads() -> None:
    among = [Interface("wlan0", "192.168.4.1"), Interface("eth0", "10.0.0.7")]
    lines = shown_lines(ANSWER, LINK, "192.168.4.1", among, 80)
    assert lines[17:20] == [
        "Scan this, or open http://192.168.4.1:8321/ and type the token k7mq2fxa9tpehw3d",
        LINK,
        "The phone has to be in the same network as wlan0 (192.168.4.1). Else: --address 10.0.0.7 (eth0).",
    ]
    assert re.fullmatch(
        r"It closes by itself at \d\d:\d\d \(60 minutes\); at once with: fieldgate phone --close", lines[20]
    )
    narrow = shown_lines(ANSWER, LINK, "192.168.4.1", among, 30)
    assert narrow[0] == "(This window is too narrow for the code, which needs 33 columns.)"
    assert narrow[2] == LINK


def test_without_a_daemon_that_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(
        'gateway.id = "mast-07"\nkafka.bootstrap_servers = "127.0.0.1:9"\noutbox.path = "outbox.db"\n'
        'board.kind = "simulated"\n'
    )
    assert cli.main(["phone", "-c", str(config), "--address", "127.0.0.1"]) == 1
    assert "no daemon runs on" in capsys.readouterr().err
    monkeypatch.setattr(phone, "interfaces", list)
    assert cli.main(["phone", "-c", str(config)]) == 1
    assert "no network here that a phone could be in" in capsys.readouterr().err
