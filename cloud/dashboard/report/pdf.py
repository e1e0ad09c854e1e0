"""The page as a PDF, by WeasyPrint: the extra ``report``, and Debian's Pango."""

from __future__ import annotations

from typing import Final

from cloud.errors import CloudError

_PANGO: Final = (
    "a PDF needs Pango: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 "
    "fonts-dejavu-core; -o FILE.html doesn't"
)


def require() -> None:
    """Raises CloudError with the command that installs what is missing."""
    try:
        import weasyprint  # noqa: F401
    except OSError as error:
        raise CloudError(f"{_PANGO} ({str(error).partition(chr(10))[0]})") from error


def pdf_of(html: str) -> bytes:
    """The document's bytes. Raises CloudError."""
    require()
    import weasyprint

    made: bytes = weasyprint.HTML(string=html, url_fetcher=_nothing_else).write_pdf()
    return made


def _nothing_else(url: str) -> dict[str, object]:
    """The page is whole: whatever it names elsewhere isn't fetched."""
    raise ValueError(f"{url} isn't part of the report")
