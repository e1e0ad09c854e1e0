"""Java's classes as they are in memory once loaded: a JVM that finds them there starts in half the time.

Beside the jars, made once, during the first ``make run`` (JEP 350, "Dynamic CDS Archives"). The JVM itself
checks that the archive was made by the same Java with the same jars, and loads classes as ever where it
wasn't.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_NAME: Final = "classes.jsa"
SILENT: Final = "-Xlog:cds=off,cds+dynamic=off,class+load=off"


def using(jars: Path) -> list[str]:
    """Options of a JVM that uses the archive of a folder of jars; none where there is no archive."""
    archive = jars / _NAME
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}", SILENT] if archive.exists() else []
