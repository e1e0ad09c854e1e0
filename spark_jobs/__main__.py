"""``python -m spark_jobs run NAME…``: exit 0 after SIGTERM or when done, 1 after a failure, 2 on misuse."""

from __future__ import annotations

import logging
import sys
import time

from spark_jobs.errors import JobError, SettingsError
from spark_jobs.settings import parse_settings


def _log_to_stderr() -> None:
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logger = logging.getLogger("fieldgate")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def main() -> int:
    """Entry point; the exit status."""
    try:
        settings = parse_settings(sys.argv[1:])
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _log_to_stderr()
    # Only now: PySpark takes a second to load, a usage error need not wait for it.
    from spark_jobs.jobs.run import run

    try:
        run(settings)
    except JobError as error:
        logging.getLogger("fieldgate.jobs").error("event=jobs.failed %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
