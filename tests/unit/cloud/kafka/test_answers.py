"""Requests to Kafka that are never answered, and properties that none has: an error with a text."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined] # no __all__

from cloud.errors import CloudError
from cloud.kafka import provision
from cloud.kafka.librdkafka import open_client
from cloud.kafka.roles import Permission
from cloud.operate import users


class Silent:
    """An admin client that is admitted, and gets no other answer."""

    def describe_cluster(self, **_: Any) -> Future[Any]:
        answer = Future[Any]()
        operations = (AclOperation.DESCRIBE, AclOperation.ALTER)
        answer.set_result(SimpleNamespace(authorized_operations=operations))
        return answer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def request(wanted: Any, **_: Any) -> Any:
            never = Future[Any]()
            return dict.fromkeys(map(str, wanted), never) if isinstance(wanted, list) else never

        return request


@pytest.mark.parametrize(
    "request_",
    [
        lambda: users.Users("kafka:9092", {}, 0.01).compare("mast-07", ()),
        lambda: users.Users("kafka:9092", {}, 0.01).allow("mast-07", [Permission("topic", "a", "READ")]),
        lambda: users.Users("kafka:9092", {}, 0.01).set_password("mast-07", "x"),
        lambda: users.Users("kafka:9092", {}, 0.01)._known("mast-07"),
        lambda: provision.provision_topics("kafka:9092", timeout_s=0.01),
    ],
)
def test_what_is_not_answered_in_time(request_: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (users, provision):
        monkeypatch.setattr(module, "open_admin", lambda *_: (Silent(), SimpleNamespace(topics={})))
    with pytest.raises(CloudError, match=r"no answer from Kafka in 0\.02 s"):
        request_()


@pytest.mark.parametrize("kind", [Producer, Consumer, AdminClient])
@pytest.mark.parametrize("name", ["no.such", "stats_cb"])
def test_what_is_no_property_is_named(kind: Callable[..., Any], name: str) -> None:
    with pytest.raises(CloudError, match=rf"^kafka\.properties: .*{name}"):
        open_client(kind, {"group.id": "one", name: "x"})
