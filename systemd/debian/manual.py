"""The manual page, made from the parsers, in man(7)'s macros."""

from __future__ import annotations

from datetime import UTC, datetime

from arguments import NOT_PACKAGED, Command, Option

_FILES = (
    ("/etc/fieldgate/gateway.toml", "The config."),
    ("/var/lib/fieldgate/outbox.db", "What Kafka has not confirmed, where outbox.path isn't set."),
    ("/usr/local/lib/fieldgate", "Drivers that others write."),
    ("/usr/share/doc/fieldgate", "Installing, configuring, operating; examples."),
)
_EXITS = (("0", "Done."), ("1", "Failed."), ("2", "Wrong usage."), ("130", "Interrupted."))


def roff(top: Command, version: str, epoch: int) -> str:
    """The page fieldgate(1), UTF-8."""
    date = datetime.fromtimestamp(epoch, UTC).date().isoformat()
    lines = [
        f'.TH FIELDGATE 1 "{date}" "fieldgate {_text(version)}" "User Commands"',
        ".SH NAME",
        f"fieldgate \\- {_text(top.help[:1].lower() + top.help[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B fieldgate",
        ".I COMMAND",
        "[\\fIOPTION\\fR...]",
        ".SH DESCRIPTION",
        "The gateway of a met mast, and the commands to set it up, inspect it and carry its data home.",
        f"Not in the Debian package: {_text(', '.join(sorted(NOT_PACKAGED)))}; they need a clone.",
        ".SH OPTIONS",
        *_options(top.options),
        ".SH COMMANDS",
    ]
    for command in list(top.all())[1:]:
        lines += [f'.SS "{_text(" ".join(command.words))}"', _sentence(command.help)]
        if command.commands:
            continue
        lines += [".PP", f".nh\n{_text(command.usage)}\n.hy"]
        lines += _options(
            (*command.arguments, *(each for each in command.options if "--help" not in each.flags))
        )
    lines.append(".SH FILES")
    lines += [line for path, what in _FILES for line in (".TP", f".I {_text(path)}", _text(what))]
    lines.append(".SH EXIT STATUS")
    lines += [line for code, what in _EXITS for line in (".TP", f".B {code}", what)]
    lines += [".SH SEE ALSO", ".BR systemctl (1),", ".BR journalctl (1),", ".BR mosquitto (8)"]
    return "\n".join(lines) + "\n"


def _options(options: tuple[Option, ...]) -> list[str]:
    lines = []
    for option in options:
        names = ", ".join(f"\\fB{_text(flag)}\\fR" for flag in option.flags)
        value = f"\\fI{_text(option.value)}\\fR" if option.value else ""
        lines += [".TP", " ".join(each for each in (names, value) if each), _sentence(option.help)]
    return lines


def _sentence(text: str) -> str:
    text = _text(text[:1].upper() + text[1:])
    return text if not text or text.endswith(".") else f"{text}."


def _text(text: str) -> str:
    """Escaped for roff: backslashes, hyphens, and dots or quotes that would begin a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
