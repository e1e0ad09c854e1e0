"""Stores of objects on this machine: moto, which each test run has, and versitygw, where it is installed.

Moto has no users and forgets everything when it is killed; versitygw keeps its objects as files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from cloud.config import StoreConfig, load
from cloud.local.process import free_port
from tests.support.servers import eventually

SECRET = "not-to-be-seen-anywhere"  # noqa: S105
_MOTO = Path(__file__).resolve().parents[2] / ".moto" / "bin" / "python"
_ONE_PUT_AT_A_TIME = """
import threading
from moto.s3.responses import S3Response
from moto.server import main

put, lock = S3Response.put_object, threading.Lock()

def put_alone(*given, **named):
    with lock:
        return put(*given, **named)

S3Response.put_object = put_alone
main()
"""
"""Moto looks whether an object is there and puts it then: on a busy machine two conditional puts succeed."""


def versitygw() -> str | None:
    """The program, of $FIELDGATE_VERSITYGW or on the path."""
    return os.environ.get("FIELDGATE_VERSITYGW") or shutil.which("versitygw")


class ObjectStore(ABC):
    """A store of one test run, at ``port`` of 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Its command line."""

    @abstractmethod
    def make_bucket(self) -> str:
        """A new bucket's name."""

    def start(self) -> None:
        with (self.folder / "store.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                env={**os.environ, "ROOT_ACCESS_KEY": "fieldgate", "ROOT_SECRET_KEY": SECRET},
            )
        eventually(self._answers)

    def kill(self) -> None:
        """Ends it at once; nothing is flushed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def config(self, file: Path, lake: str, port: int | None = None, *more: str) -> Path:
        """Writes a ``cloud.toml`` for a lake in this store, reached at another port perhaps."""
        lines = [
            *("[lake]", f'path = "{lake}"', "[lake.storage]"),
            f'endpoint = "http://127.0.0.1:{port or self.port}"',
            *('access_key = "fieldgate"', f'secret_key = "{SECRET}"'),
            *more,
        ]
        file.write_text("\n".join(lines))
        file.chmod(0o600)
        return file

    def options(self, port: int | None = None) -> StoreConfig:
        """As a config has it."""
        return load(self.config(self.folder / "store.toml", "s3://any/lake", port)).lake.storage

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/", timeout=10):
                return True
        except HTTPError:
            return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Moto(ObjectStore):
    def _command(self) -> Sequence[str]:
        if not _MOTO.exists():
            pytest.fail(f"no {_MOTO}: run make setup-dev")
        return [str(_MOTO), "-c", _ONE_PUT_AT_A_TIME, "-H", "127.0.0.1", "-p", str(self.port)]

    def make_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        with urlopen(Request(f"http://127.0.0.1:{self.port}/{name}", method="PUT"), timeout=30):
            return name


class VersityGateway(ObjectStore):
    def _command(self) -> Sequence[str]:
        for name in ("objects", "metadata"):
            (self.folder / name).mkdir(exist_ok=True)
        places = ["--sidecar", str(self.folder / "metadata"), str(self.folder / "objects")]
        return [versitygw() or "versitygw", "--port", f"127.0.0.1:{self.port}", "posix", *places]

    def make_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        (self.folder / "objects" / name).mkdir()
        return name
