"""A lake on S3, for whoever reads or writes it: its URI, its options, its errors in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cloud.config import StoreConfig

_PROBLEMS: Final = (
    (
        r"NoSuchBucket|bucket does not exist|UnknownStoreException",
        "no such bucket: {bucket} at {endpoint}; create it, or correct the URI",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|signature we calculated|"
        r"[Aa]ccess [Kk]ey I[Dd] you provided|security token",
        "{endpoint} refuses the credentials; correct access_key and secret_key of {section}, or AWS_… "
        "in the environment",
    ),
    (
        # Before the others: whoever has no keys asks this machine for those of its role, whatever it answers.
        r"NoAuthWithAWSException|NoAwsCredentials|No AWS Credentials|Unable to load credentials|"
        r"credential provider|loading credentials|IMDS|/latest/(api/token|meta-data)",
        "no credentials for {endpoint}; give access_key and secret_key in {section}, or "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
    ),
    (
        r"AccessDenied|403 Forbidden|Status Code: 403",
        "no permission for {uri} at {endpoint}; the credentials need ListBucket on the bucket, and "
        "GetObject, PutObject and DeleteObject below it",
    ),
    (
        r"UnknownHost|dns error|Connection refused|ConnectException|client error \(Connect\)|timed out|"
        r"No route to host",
        "no connection to {endpoint}; is the endpoint of {section} right, and the store up",
    ),
)


def is_s3(uri: str) -> bool:
    """Whether a place is in a bucket."""
    return re.match("s3a?://", uri) is not None


def for_hadoop(uri: str) -> str:
    """A URI as Spark takes it: S3's scheme is ``s3a`` there."""
    return re.sub("^s3://", "s3a://", uri)


def for_delta(uri: str) -> str:
    """A URI as delta-rs takes it: the scheme is ``s3`` there."""
    return re.sub("^s3a://", "s3://", uri)


def in_words(
    error: object, uri: str, store: StoreConfig | None, section: str = "[lake.storage]"
) -> str | None:
    """What is wrong with a place in a bucket and what to do, from a library's error; None for others."""
    endpoint = (store.endpoint if store is not None else None) or "Amazon S3"
    bucket = re.sub("^s3a?://", "", uri).partition("/")[0]
    for signs, words in _PROBLEMS:
        if re.search(signs, str(error)) is not None:
            return words.format(bucket=bucket, endpoint=endpoint, uri=uri, section=section)
    return None


def for_delta_rs(store: StoreConfig | None) -> dict[str, str]:
    """The store's options as delta-rs takes them; what isn't given it finds in the environment.

    Raises UnreadableError.
    """
    if store is None:
        return {}
    styles = {None: None, True: "false", False: "true"}
    given = {
        "AWS_ENDPOINT_URL": store.endpoint,
        "AWS_ALLOW_HTTP": "true" if store.endpoint and store.endpoint.startswith("http://") else None,
        "AWS_REGION": store.region or ("us-east-1" if store.endpoint else None),
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": styles[store.path_style],
        "AWS_ACCESS_KEY_ID": None if store.access_key is None else store.access_key.reveal(),
        "AWS_SECRET_ACCESS_KEY": None if store.secret_key is None else store.secret_key.reveal(),
    }
    return {key: value for key, value in given.items() if value is not None}
