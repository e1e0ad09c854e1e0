"""The broker's certificate: made once, renewed before its end or for another name, by the program openssl."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cloud.command_line import CommandError
from gateway.commands.provision import certificates
from tests.unit.gateway.commands.test_provision_mosquitto import files, provision, root

__all__ = ["root"]
_TLS = ("--lan", "8883", "--tls", "--name", "mast-07.local", "--name", "192.168.4.1")
_PLACES = [f"etc/mosquitto/fieldgate-{name}" for name in ("ca.key", "ca.pem", "server.key", "server.pem")]


def test_it_is_made_once_and_stays(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(root)
    assert provision(root, *_TLS, "--dry-run") == 0
    assert "fieldgate-server.pem: a new one, as there is none" in capsys.readouterr().out
    assert files(root) == before
    assert provision(root, *_TLS) == 0
    printed, made = capsys.readouterr().out, files(root)
    assert [place for place in made if "fieldgate-" in place] == _PLACES
    assert "BEGIN" not in printed
    assert f"Devices need {root}/etc/mosquitto/fieldgate-ca.pem, SHA-256 " in printed
    assert "certfile /etc/mosquitto/fieldgate-server.pem" in made["etc/mosquitto/conf.d/fieldgate.conf"]
    assert "Encrypted." in made["etc/mosquitto/conf.d/fieldgate.conf"]
    modes = [stat.S_IMODE((root / place).stat().st_mode) for place in _PLACES]
    assert modes == [0o600, 0o644, 0o600, 0o644]
    assert provision(root, *_TLS) == 0
    assert files(root) == made
    assert "nothing to change" in capsys.readouterr().out


def test_it_is_renewed_before_its_end_and_for_a_new_name(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert provision(root, *_TLS) == 0
    first = files(root)
    capsys.readouterr()
    assert provision(root, *_TLS, "--name", "10.0.0.7", "--dry-run") == 0
    assert "it lacks IP:10.0.0.7" in capsys.readouterr().out
    assert provision(root, *_TLS, "--name", "10.0.0.7") == 0
    second = files(root)
    # The authority, which devices hold, is the same; the certificate and its key are new.
    assert [first[place] == second[place] for place in _PLACES] == [True, True, False, False]
    assert provision(root, *_TLS) == 0
    assert files(root) == second
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "_RENEWED_DAYS", 821)
        assert provision(root, *_TLS) == 0
    third = files(root)
    assert [second[place] == third[place] for place in _PLACES] == [True, True, False, False]
    (root / _PLACES[2]).write_text(second[_PLACES[2]])
    assert certificates.why_new(root, []) == "its key is another one's"
    (root / _PLACES[1]).write_text(first["etc/mosquitto/fieldgate-ca.pem"].replace("A", "B", 1))
    assert certificates.why_new(root, []) == "it isn't the authority's, or has ended"


def test_a_timer_renews_it_in_time_under_its_names_and_of_its_key(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert provision(root, *_TLS) == 0
    assert "Renewed by itself: systemctl enable --now fieldgate-certificate.timer" in capsys.readouterr().out
    first = files(root)
    assert provision(root, "--renew") == 0
    assert (capsys.readouterr().out, files(root)) == ("nothing to change\n", first)
    monkeypatch.setattr(certificates, "_RENEWED_DAYS", 819)
    assert provision(root, "--renew") == 0
    assert files(root) == first
    monkeypatch.setattr(certificates, "_RENEWED_DAYS", 821)
    assert provision(root, "--renew", "--dry-run") == 0
    assert files(root) == first
    capsys.readouterr()
    assert provision(root, "--renew") == 0
    assert "fieldgate-server.pem, as it ends within 821 days" in capsys.readouterr().out
    second = files(root)
    # A power cut in between has nothing to tear: one file, written at once.
    assert [place for place in first if first[place] != second[place]] == [_PLACES[3]]
    monkeypatch.setattr(certificates, "_RENEWED_DAYS", 400)
    assert certificates.why_new(root, ["DNS:mast-07.local", "IP:192.168.4.1"]) is None
    for place in _PLACES:
        kept = (root / place).read_text()
        (root / place).unlink()
        # Never another authority, which no device has.
        assert provision(root, "--renew") == 1
        assert "there is no certificate to renew" in capsys.readouterr().err
        assert not (root / place).exists()
        (root / place).write_text(kept)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--renew", "--lan", "8883"), "--renew stands alone"),
        (("--tls",), "--tls needs --lan"),
        (("--lan", "8883", "--name", "a"), "give --tls too"),
        (("--lan", "8883", "--tls"), "--tls needs --name"),
        (("--lan", "8883", "--tls", "--name", "a, DNS:b"), "must be a host's name"),
    ],
)
def test_what_makes_no_certificate_is_refused(
    root: Path, words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(root)
    assert provision(root, *words) != 0
    assert problem in capsys.readouterr().err
    assert files(root) == before


def test_without_a_clock_or_openssl_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "today", lambda: None)
        with pytest.raises(CommandError, match="clock isn't set"):
            certificates.made(tmp_path, ["DNS:a"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="apt-get install openssl"):
        certificates.made(tmp_path, ["DNS:a"])
