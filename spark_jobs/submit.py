"""The application file for ``spark-submit --py-files fieldgate.zip submit.py run ingest …``.

It stands alone, so that it can be copied anywhere. spark-submit puts the file's folder first on the path; if
that is this package, its modules must not be found by their short names.
"""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]

if __name__ == "__main__":
    from spark_jobs.__main__ import end, main

    end(main())
