"""``fieldgate token``: bearer tokens, by which programs read the dashboard's API as its users may.

The file that ``tokens`` in ``[dashboard]`` names, of SQLite, has their hashes: SHA-256 is enough for 256
random bits, which no one guesses. The server looks each time: what is revoked is refused at once.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cloud.command_line import OK, count
from cloud.config import load
from cloud.errors import CloudError
from cloud.values import CLOUD_CONFIG

_MOST_DAYS: Final = 36_500
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS token (id TEXT PRIMARY KEY, user TEXT NOT NULL, note TEXT NOT NULL, "
    "sha256 TEXT NOT NULL UNIQUE, expires_s REAL NOT NULL) STRICT"
)


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    try:
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        # The server looks in its event loop: it doesn't wait long for a lock.
        wait_s = 0.1 if mode == "ro" else 5.0
        with closing(sqlite3.connect(uri, wait_s, uri=True)) as connection, connection:
            yield connection
    except sqlite3.Error as error:
        raise CloudError(f"{path}: {error}: is it the file of `fieldgate token`, and readable?") from error


def user_of(path: Path, token: str) -> str | None:
    """The token's user, None of one that is unknown, revoked or expired. Raises CloudError."""
    if not path.exists():
        return None
    with _opened(path, "ro") as tokens:
        sql = "SELECT user FROM token WHERE sha256 = ? AND expires_s > ?"
        found = tokens.execute(sql, (_hash(token), time.time())).fetchone()
    return None if found is None else str(found[0])


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = "Bearer tokens for /api/v1/ of the dashboard: each has its user's masts alone."
    config = argparse.ArgumentParser(add_help=False)
    meaning = f"the cloud's config: users, and the file of tokens (default: {CLOUD_CONFIG})"
    config.add_argument("--cloud", type=Path, default=CLOUD_CONFIG, metavar="FILE", help=meaning)
    actions = arguments.add_subparsers(dest="action", metavar="ACTION", required=True)
    made = actions.add_parser("add", parents=[config], help="make one, which is printed this once")
    made.add_argument("user", metavar="USER", help="of [dashboard.users.USER]")
    made.add_argument("--days", type=count, default=90, metavar="N", help="until it expires (default: 90)")
    made.add_argument("--note", default="", metavar="TEXT", help="what it is for")
    actions.add_parser("list", parents=[config], help="all of them, without the tokens themselves")
    gone = actions.add_parser("revoke", parents=[config], help="refuse one from now on")
    gone.add_argument("id", metavar="ID", help="as list shows it")


def run(options: argparse.Namespace) -> int:
    """Does one of them. Raises CloudError."""
    config = load(options.cloud).dashboard
    if config.tokens is None:
        line = 'tokens = "tokens.db"'
        raise CloudError(f"{options.cloud}: [dashboard] names no file of tokens: add {line}, start it anew")
    if options.action == "add" and options.user not in config.users:
        known = ", ".join(config.users) or "none yet"
        raise CloudError(f"{options.cloud} has no [dashboard.users.{options.user}]; its users: {known}")
    with _opened(Path(config.tokens), "rwc") as tokens:
        tokens.execute(_TABLE)
        if options.action == "add":
            token, until_s = (
                f"fieldgate_{secrets.token_urlsafe(32)}",
                time.time() + 86_400 * min(options.days, _MOST_DAYS),
            )
            row = (_hash(token)[:8], options.user, options.note, _hash(token), until_s)
            tokens.execute("INSERT INTO token VALUES (?, ?, ?, ?, ?)", row)
            sys.stdout.write(f"{token}\n")
        elif options.action == "revoke":
            if tokens.execute("DELETE FROM token WHERE id = ?", (options.id,)).rowcount == 0:
                raise CloudError(f"there is no token {options.id}; `fieldgate token list` has them all")
            sys.stdout.write(f"{options.id} is revoked\n")
        else:
            rows = tokens.execute("SELECT id, user, expires_s, note FROM token ORDER BY user, expires_s")
            for name, user, until_s, note in rows:
                state = "expired" if until_s <= time.time() else "until"
                moment = datetime.fromtimestamp(until_s, UTC)
                sys.stdout.write(f"{name}  {user}  {state} {moment:%Y-%m-%d %H:%MZ}  {note}".rstrip() + "\n")
    return OK
