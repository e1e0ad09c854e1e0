"""What is asked of a schema registry, in the protocol of Confluent's, which Apicurio and others take too.

A few requests over the standard library: no package has to be on a mast for them. Answers are bounded, nobody
is redirected (the password would go along), and each request has an end.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from cloud.errors import CloudError
from cloud.wire.avro_readings import COMPATIBILITY, SCHEMA, SUBJECT

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_ANSWER: Final = 256 << 10
_TIMEOUT_S: Final = 10.0
PROVISION: Final = "fieldgate provision schemas"


class RegistryError(CloudError):
    """The registry can't be asked, or refuses."""


class NotRegistered(RegistryError):
    """The registry answers, and has no such schema."""


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """Where a registry is (http(s)://HOST[:PORT][/PATH]), the CA of its certificate (PEM), and a login."""

    url: str
    ca: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Registry:
    """A registry. Any thread may use it; each call raises RegistryError, at the latest after some 10 s."""

    def __init__(self, access: RegistryAccess, timeout_s: float = _TIMEOUT_S) -> None:
        self._access = access
        self._timeout_s = timeout_s

    def own_id(self) -> int:
        """The id of this version's schema. Raises NotRegistered."""
        return self._id(f"/subjects/{quote(SUBJECT)}", {"schema": SCHEMA})

    def schema(self, schema_id: int) -> str:
        """The schema of an id. Raises NotRegistered."""
        text = self._ask("GET", f"/schemas/ids/{schema_id}").get("schema")
        if not isinstance(text, str):
            raise RegistryError(f"{self._access.url}: the answer about {schema_id} has no schema")
        return text

    def incompatibility(self) -> str | None:
        """Why this version's schema can't be registered beside those that are; None where it can."""
        path = f"/compatibility/subjects/{quote(SUBJECT)}/versions?verbose=true"
        try:
            answer = self._ask("POST", path, {"schema": SCHEMA})
        except NotRegistered:
            return None
        if answer.get("is_compatible") is True:
            return None
        return "; ".join(map(str, answer.get("messages") or ())) or f"it breaks the rule of {SUBJECT}"

    def rule(self) -> str | None:
        """The subject's own compatibility rule; None where it has none."""
        try:
            return str(self._ask("GET", f"/config/{quote(SUBJECT)}").get("compatibilityLevel"))
        except NotRegistered:
            return None

    def set_rule(self) -> None:
        """Have it hold by ``COMPATIBILITY``; that may be before the first schema."""
        self._ask("PUT", f"/config/{quote(SUBJECT)}", {"compatibility": COMPATIBILITY})

    def register(self) -> int:
        """Register this version's schema; its id."""
        return self._id(f"/subjects/{quote(SUBJECT)}/versions", {"schema": SCHEMA})

    def _id(self, path: str, body: Mapping[str, str]) -> int:
        found = self._ask("POST", path, body).get("id")
        if type(found) is not int or not 0 < found < 1 << 31:
            raise RegistryError(f"{self._access.url}: {str(found)[:40]!r} is no id of a schema")
        return found

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        access = self._access
        headers = {"Accept": f"{_TYPE}, application/json"}
        data = None
        if body is not None:
            headers["Content-Type"] = _TYPE
            data = json.dumps(body).encode()
        if access.username is not None:
            login = f"{access.username}:{access.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        request = Request(access.url + path, data, headers, method=method)  # noqa: S310 - http(s) only
        try:
            with self._opener().open(request, timeout=self._timeout_s) as response:
                answer = _object(response.read(_MAX_ANSWER))
        except HTTPError as error:
            with error:
                raise self._refusal(error.code, _object(error.read(_MAX_ANSWER))) from error
        except URLError as error:
            raise RegistryError(f"{access.url}: {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise RegistryError(f"{access.url}: {str(error) or type(error).__name__}") from error
        return answer

    def _opener(self) -> OpenerDirector:
        if not self._access.url.startswith("https:"):
            return build_opener(_NoRedirect())
        # Made each time, for a CA that was renewed counts; a request is rare.
        try:
            context = ssl.create_default_context(cafile=self._access.ca)
        except (OSError, ssl.SSLError) as error:
            raise RegistryError(f"{self._access.ca}: {error}") from error
        return build_opener(HTTPSHandler(context=context), _NoRedirect())

    def _refusal(self, status: int, answer: Mapping[str, Any]) -> RegistryError:
        message, url = str(answer.get("message", ""))[:500], self._access.url
        if status == 404 and "error_code" in answer:
            return NotRegistered(f"{url}: {message}")
        if status == 409:
            return RegistryError(f"{url}: {SUBJECT} is not compatible with what is registered: {message}")
        if status in (401, 403):
            return RegistryError(f"{url} refuses this login ({status}): look at username and password")
        return RegistryError(f"{url}: status {status} {message}".rstrip())


def _object(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


class RegistrySchemas(Mapping[int, str]):
    """A registry's schemas by id, each asked for once.

    Raises RegistryError where the registry can't be asked; it has those alone that were asked for.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._found: dict[int, str | None] = {}

    def __getitem__(self, schema_id: int) -> str:
        if schema_id not in self._found:
            try:
                self._found[schema_id] = self._registry.schema(schema_id)
            except NotRegistered:
                self._found[schema_id] = None
        found = self._found[schema_id]
        if found is None:
            raise KeyError(schema_id)
        return found

    def __iter__(self) -> Iterator[int]:
        return (number for number, schema in self._found.items() if schema is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
