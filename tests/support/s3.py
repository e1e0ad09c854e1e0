"""Stores of objects on this machine: moto, which each test run has, and versitygw, where it is installed.

Moto asks for keys only when told to and forgets everything when it is killed; versitygw keeps its objects as
files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pytest

from cloud.config import StoreConfig, load
from cloud.local.process import free_port
from tests.support.servers import eventually

SECRET = "not-to-be-seen-anywhere"  # noqa: S105
_MOTO = Path(__file__).resolve().parents[2] / ".moto" / "bin" / "python"
_MOTO_MENDED: Final = """
import threading
from urllib.parse import quote
from moto.iam.access_control import IAMRequestBase
from moto.s3.responses import S3Response
from moto.server import main

put, lock = S3Response.put_object, threading.Lock()
request = IAMRequestBase._create_aws_request

def put_alone(self, *given, **named):
    if self.bucket_name.startswith("careless-"):
        self.headers = {k: v for k, v in self.headers.items() if k.lower() != "if-none-match"}
    with lock:
        return put(self, *given, **named)

def request_as_signed(self):
    path, mark, query = self._path.partition("?")
    self._path = path + mark + quote(query, safe="=&%-_.~")
    return request(self)

S3Response.put_object = put_alone
IAMRequestBase._create_aws_request = request_as_signed
main()
"""
"""Moto looks whether an object is there and puts it then: on a busy machine two conditional puts succeed. And
it compares the signature with that of another text than was signed where a query has a slash.

In buckets named ``careless-…`` it overwrites whatever is there, as stores do that ignore If-None-Match.
"""
_BYTES: Final = {"Content-Type": "application/octet-stream"}
"""Else moto takes what is sent for a form."""


def _signed_for(service: str) -> dict[str, str]:
    """Which service is meant moto finds in the signature, that it doesn't check where it asks for no keys."""
    return {"Authorization": f"AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/{service}/aws4_request"}


def versitygw() -> str | None:
    """The program, of $FIELDGATE_VERSITYGW or on the path."""
    return os.environ.get("FIELDGATE_VERSITYGW") or shutil.which("versitygw")


Keys = tuple[str, str]
"""An access key and its secret."""
_ROOT: Final[Keys] = ("fieldgate", SECRET)


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

    def config(
        self, file: Path, lake: str, port: int | None = None, *more: str, keys: Keys | None = _ROOT
    ) -> Path:
        """Writes a ``cloud.toml`` for a lake in this store, reached at another port perhaps."""
        lines = [
            *("[lake]", f'path = "{lake}"', "[lake.storage]"),
            f'endpoint = "http://127.0.0.1:{port or self.port}"',
            *(() if keys is None else (f'access_key = "{keys[0]}"', f'secret_key = "{keys[1]}"')),
            *more,
        ]
        file.write_text("\n".join(lines))
        file.chmod(0o600)
        return file

    def options(self, port: int | None = None, *, keys: Keys | None = _ROOT) -> StoreConfig:
        """As a config has it."""
        return load(self.config(self.folder / "store.toml", "s3://any/lake", port, keys=keys)).lake.storage

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
        return [str(_MOTO), "-c", _MOTO_MENDED, "-H", "127.0.0.1", "-p", str(self.port)]

    def make_bucket(self, kind: str = "bucket") -> str:
        """A new bucket's name; of the kind ``careless`` it is one in which everything is overwritten."""
        name = f"{kind}-{uuid.uuid4().hex[:12]}"
        self._ask("PUT", name)
        return name

    def put(self, place: str, text: str) -> None:
        """Stores an object at ``BUCKET/KEY``."""
        self._ask("PUT", place, text, _BYTES)

    def objects(self, bucket: str) -> dict[str, bytes]:
        """All of a bucket, which has at most a thousand, by key, but what a job deletes meanwhile."""
        found: dict[str, bytes] = {}
        for key in re.findall("<Key>(.+?)</Key>", self._ask("GET", f"{bucket}?list-type=2").decode()):
            try:
                found[key] = self._ask("GET", f"{bucket}/{quote(key)}", "", _signed_for("s3"))
            except HTTPError as error:
                if error.code != 404:
                    raise
        return found

    def new_keys(self, *actions: str) -> Keys:
        """Those of a new user who may do this, ``s3:GetObject`` for instance, in every bucket."""
        user = uuid.uuid4().hex
        self._iam("CreateUser", UserName=user)
        if actions:
            allowed = [{"Effect": "Allow", "Action": actions, "Resource": "*"}]
            policy = json.dumps({"Version": "2012-10-17", "Statement": allowed})
            self._iam("PutUserPolicy", UserName=user, PolicyName="all", PolicyDocument=policy)
        answer = self._iam("CreateAccessKey", UserName=user)
        ((key, secret),) = re.findall(r"(?s)<AccessKeyId>(.+?)<.+<SecretAccessKey>(.+?)<", answer)
        return key, secret

    @contextlib.contextmanager
    def asking_for_keys(self) -> Iterator[None]:
        """Within the block it does nothing without the keys of a user who may; outside nobody needs any."""
        self._ask("POST", "moto-api/reset-auth", "0", _BYTES)
        try:
            yield
        finally:
            self._ask("POST", "moto-api/reset-auth", "inf", _BYTES)

    def _iam(self, action: str, **fields: str) -> str:
        return self._ask("POST", "", urlencode({"Action": action, **fields}), _signed_for("iam")).decode()

    def _ask(self, method: str, path: str, text: str = "", headers: dict[str, str] | None = None) -> bytes:
        url = f"http://127.0.0.1:{self.port}/{path}"
        with urlopen(Request(url, text.encode() or None, headers or {}, method=method), timeout=30) as answer:
            content: bytes = answer.read()
            return content


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
