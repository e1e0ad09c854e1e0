"""What each event of the log means and what to do, in the words that ``journalctl -x`` shows beneath it.

``python -m gateway.system.logs.catalog`` prints it in the format of systemd (https://systemd.io/CATALOG/).
It is kept as ``systemd/fieldgate.catalog``; a test compares both, and the events with those in the code.
``@FIELDGATE_…@`` stands for a field of the entry.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from typing import Final

from gateway.system.logs.journal import message_id

_WIDTH: Final = 80

EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "broker.dropped": (
        "Mosquitto had no room for messages",
        "It dropped @FIELDGATE_MESSAGES@ since the last such line (@FIELDGATE_TOTAL@ in all), of any "
        "client. Raise max_queued_messages in mosquitto.conf, and see whether the gateway was away.",
    ),
    "calibrations.not_set_aside": (
        "The damaged calibration history could not be renamed",
        "See the disk: is it full or read-only?",
    ),
    "calibrations.unreadable": (
        "The calibration history can't be read",
        "It is set aside as @FIELDGATE_KEPT_AS@ and begins anew; Kafka has what was told. Look at the card.",
    ),
    "clock.given": (
        "Somebody gave the gateway the time",
        "By the status page, from a phone: readings since boot and those to come have their time by "
        "it, until a network sets the clock.",
    ),
    "clock.hold_ended": (
        "Readings leave without a right time",
        "Kafka was there for clock.hold_s and no time server was. Find a time server, or fit a clock module.",
    ),
    "clock.repaired": (
        "Held readings leave with their right time",
        "The clock is known now; nothing to do.",
    ),
    "clock.set": (
        "The clock was set while sampling",
        "By @FIELDGATE_BY_S@ s; sampling of @FIELDGATE_SENSOR@ goes on by the new clock. Nothing to do.",
    ),
    "clock.synchronised": (
        "The clock is right from now on",
        "It was set by @FIELDGATE_SET_BY_S@ s.",
    ),
    "clock.unsynced": (
        "Held readings leave without a right time",
        "Nobody knows when they were measured; they have quality 3 or worse. A time server or a clock "
        "module helps.",
    ),
    "config.refused": (
        "The config was not taken over",
        "@FIELDGATE_PROBLEM@\n"
        "A running daemon goes on with the old one. Mend the file (fieldgate check) and reload, or "
        "restart where the problem says so.",
    ),
    "config.warning": (
        "The config looks wrong somewhere",
        "@FIELDGATE_PROBLEM@\nSee fieldgate check.",
    ),
    "control.broken_off": ("A command on this machine broke off", "Nothing to do."),
    "control.refused": (
        "A user of this machine may not command the gateway",
        "User id @FIELDGATE_UID@. Use sudo, or become a member of the group fieldgate.",
    ),
    "control.unavailable": (
        "Commands on this machine don't reach the gateway",
        "@FIELDGATE_ERROR@\n"
        "fieldgate phone needs it; sampling goes on. See the disk and the outbox's directory.",
    ),
    "daemon.cannot_start": (
        "The gateway could not start",
        "@FIELDGATE_ERROR@\nfieldgate doctor looks at the machine and says what to do.",
    ),
    "daemon.reloaded": (
        "A changed config is in force",
        "What changed: @FIELDGATE_CHANGES@",
    ),
    "daemon.restarts": (
        "The gateway restarts itself",
        "Drivers of @FIELDGATE_SENSORS@ hang, and only a new process frees what they hold. Look at "
        "the wiring.",
    ),
    "daemon.start": (
        "The gateway starts",
        "Gateway @FIELDGATE_GATEWAY@, run @FIELDGATE_RUN@.",
    ),
    "daemon.stop": (
        "The gateway has stopped",
        "@FIELDGATE_OUTBOX_RECORDS@ records wait in the outbox; they leave after the next start.",
    ),
    "dht.restarted": (
        "The process that times a DHT11's line was started again",
        "It had hung or died. Again and again: report the lines before it.",
    ),
    "driver.import": (
        "A driver's library printed something",
        "Nothing to do.",
    ),
    "emulation.broken": (
        "A driver's emulation is broken",
        "Nothing answers @FIELDGATE_SENSOR@ on this simulated board: report it to the driver's author.",
    ),
    "forecast.unknown": (
        "How long the outbox lasts can't be worked out",
        "@FIELDGATE_ERROR@\nLook at the disk; sampling goes on.",
    ),
    "gpio.callbacks": (
        "Pulses are counted by callbacks",
        "The kernel doesn't tell them on this machine: edges lost in a busy moment go unseen.",
    ),
    "kafka.answers": (
        "Kafka answers again",
        "The backlog (@FIELDGATE_OUTBOX_RECORDS@ records) drains beside the live readings.",
    ),
    "kafka.error": (
        "The Kafka client complains",
        "@FIELDGATE_ERROR@\nName resolution, TLS or a permission; told once in each outage.",
    ),
    "kafka.fatal": (
        "The Kafka client has come to its end",
        "A new one takes over; nothing is lost.",
    ),
    "kafka.no_producer": (
        "No Kafka client can be made",
        "@FIELDGATE_ERROR@\nIs a certificate being replaced? It is tried each second.",
    ),
    "kafka.silent": (
        "Kafka doesn't answer",
        "Readings go to the outbox. Nothing to do, if it comes back; else look at the uplink.",
    ),
    "kafka.undelivered": (
        "A record was not delivered",
        "It is sent again.",
    ),
    "log.unsent": (
        "Lines of the log are missing here",
        "journald had no room for @FIELDGATE_LINES@ lines before this one: is the machine overloaded, or the "
        "disk stuck?",
    ),
    "message.ignored": (
        "A message on the local broker is not forwarded",
        "Topic @FIELDGATE_TOPIC@, reason @FIELDGATE_REASON@; told once for each reason, counted in "
        "the status.",
    ),
    "message.refused": (
        "A message became a dead letter",
        "Topic @FIELDGATE_TOPIC@, reason @FIELDGATE_REASON@. Look at what the device publishes, and "
        "at [[forward]].",
    ),
    "mqtt.disconnected": (
        "The local broker ended the connection",
        "Readings go by way of the outbox meanwhile. See the broker's log: journalctl -u mosquitto.",
    ),
    "mqtt.drops_unknown": (
        "What Mosquitto drops can't be seen",
        "It doesn't let the gateway read $SYS: allow that in its ACL, or do without the count.",
    ),
    "mqtt.held": (
        "Memory is full",
        "Neither Kafka nor the disk takes anything: the broker keeps messages meanwhile. Mend the "
        "disk or the uplink.",
    ),
    "mqtt.refused": (
        "The local broker refuses the gateway",
        "@FIELDGATE_REASON@\nSee mqtt.username and mqtt.password, and the broker's password file.",
    ),
    "mqtt.resumed": (
        "Messages are taken again",
        "Memory has room; nothing to do.",
    ),
    "mqtt.session_taken_over": (
        "Another client uses this gateway's id",
        "Find the second daemon, or the program that connects with the same client id.",
    ),
    "mqtt.subscribed": (
        "Connected to the local broker",
        "Nothing to do.",
    ),
    "mqtt.subscription_refused": (
        "The local broker refuses a subscription",
        "Allow the gateway to read its own topics and those of [[forward]] in the broker's ACL.",
    ),
    "mqtt.unreachable": (
        "The local broker can't be reached",
        "@FIELDGATE_ADDRESS@: @FIELDGATE_ERROR@\n"
        "Readings go by way of the outbox meanwhile. systemctl status mosquitto",
    ),
    "notice.refused": (
        "What a command left behind is no notice",
        "It was removed. Something else wrote beside the outbox: see the line.",
    ),
    "notice.unusable": (
        "What a command left behind can't be read",
        "Events of fieldgate swap and the like wait beside the outbox. See the line's error and the disk.",
    ),
    "outbox.dropped": (
        "Records were given up",
        "@FIELDGATE_RECORDS@ records, reason @FIELDGATE_REASON@. gateway.events and gateway.runs name "
        "them.\n"
        "A larger outbox, or a new card.",
    ),
    "outbox.fetch_failed": (
        "The outbox can't be read",
        "@FIELDGATE_ERROR@\nIt is tried again. Look at the card.",
    ),
    "outbox.remove_failed": (
        "The disk refuses to forget delivered rows",
        "They are not sent again. Free the disk.",
    ),
    "outbox.size_unknown": (
        "The outbox's size can't be seen",
        "@FIELDGATE_ERROR@\nLook at the card.",
    ),
    "outbox.store_failed": (
        "A message can't be stored",
        "@FIELDGATE_ERROR@\n"
        "It stays in memory and is tried each second. Raise outbox.max_bytes if it is too large.",
    ),
    "outbox.unusable": (
        "The outbox's disk fails",
        "@FIELDGATE_ERROR@\n"
        "What is stored stays in memory (32 MiB) and moves to the disk when that works again. Free or "
        "replace the disk; don't restart the gateway before: that loses what is in memory.",
    ),
    "outbox.usable": (
        "The outbox's disk works again",
        "Nothing to do.",
    ),
    "phone.closed": ("The status page is no longer open on the network", "Nothing to do."),
    "phone.opened": (
        "The status page is open on the network",
        "At @FIELDGATE_ADDRESS@ for @FIELDGATE_MINUTES@ minutes, for whoever has the token.",
    ),
    "run.closed": (
        "The run before was killed",
        "Run @FIELDGATE_RUN@ never ended itself; its last record says so now. Nothing to do.",
    ),
    "run.unreadable": (
        "A retained run record can't be read",
        "@FIELDGATE_ERROR@\nSomething else wrote to the gateway's run topic.",
    ),
    "sampler.abandoned": (
        "A sensor's driver hangs",
        "It was given up and is started again; its periods are READ_ERROR. Look at the wiring and the bus.",
    ),
    "sampler.died": (
        "A driver failed against its contract",
        "@FIELDGATE_SENSOR@ is started again in @FIELDGATE_AGAIN_IN_S@ s. Report the traceback.",
    ),
    "sampler.late": (
        "A read took longer than its interval",
        "@FIELDGATE_SENSOR@ missed @FIELDGATE_MISSED@ periods. Give it a longer interval_s.",
    ),
    "sampler.returned": (
        "A driver that hung has come back",
        "Its answer is thrown away; @FIELDGATE_SENSOR@ is started anew.",
    ),
    "scd4x.no_compensation": (
        "An SCD4x is read without pressure compensation",
        "Nothing to do.",
    ),
    "scd4x.self_calibration": (
        "An SCD4x's self-calibration was set",
        "As the config has it.",
    ),
    "scd4x.start_again": (
        "An SCD4x was started again",
        "It had been silent for @FIELDGATE_SILENT_S@ s: did its supply fail for a moment?",
    ),
    "scd4x.variant": (
        "An SCD4x is another variant than configured",
        "Configured @FIELDGATE_CONFIGURED@, found @FIELDGATE_FOUND@: correct variant in the config.",
    ),
    "sensor.answers": (
        "A sensor answers again",
        "@FIELDGATE_SENSOR@; nothing to do.",
    ),
    "sensor.asked_again": (
        "A sensor is asked again",
        "Its first answer failed.",
    ),
    "sensor.not_primed": (
        "A sensor could not be asked ahead",
        "It shows in the reading.",
    ),
    "sensor.other_serial": (
        "A sensor has another serial number than the config",
        "Configured @FIELDGATE_CONFIGURED@, it says @FIELDGATE_SAID@. Was it swapped? Put its number "
        "and calibration into the config.",
    ),
    "sensor.pulses_unknown": (
        "A sensor's pulses can't be shown",
        "@FIELDGATE_SENSOR@; its readings go on.",
    ),
    "sensor.silent": (
        "A sensor gives no reading",
        "@FIELDGATE_SENSOR@: @FIELDGATE_ERROR@\n"
        "fieldgate doctor and fieldgate read @FIELDGATE_SENSOR@ tell more.",
    ),
    "state.not_written": (
        "A small file beside the outbox can't be written",
        "@FIELDGATE_PATH@: @FIELDGATE_ERROR@\nIs the disk full or read-only?",
    ),
    "state.unreadable": (
        "A small file beside the outbox can't be read",
        "@FIELDGATE_PATH@: @FIELDGATE_ERROR@\nIt begins anew. Look at the card.",
    ),
    "status.bad_request": ("The status page was asked something it doesn't know", "Nothing to do."),
    "status.broken_off": ("A page broke off", "Nothing to do."),
    "status.refused": (
        "The status page refused somebody",
        "Without the token, or too often with a wrong one.",
    ),
    "status.request_failed": (
        "The status page failed to answer",
        "Report the lines that follow.",
    ),
    "status.page_gone": (
        "A page that followed has gone",
        "Nothing to do.",
    ),
    "status.request": (
        "The status page was asked",
        "Nothing to do.",
    ),
    "status.unavailable": (
        "The status page can't listen",
        "@FIELDGATE_LISTEN@: @FIELDGATE_ERROR@\nSampling goes on. Free the port, or change [status] listen.",
    ),
    "status.unreadable": (
        "A retained status can't be read",
        "@FIELDGATE_ERROR@\nSomething else wrote to the gateway's status topic.",
    ),
    "status.will": (
        "Another run of this gateway was killed",
        "Its last will goes to Kafka as it is; nothing to do.",
    ),
    "systemd.no_library": (
        "The gateway can't notify systemd",
        "Install @FIELDGATE_PACKAGE@ (or fieldgate[pi]): systemd ends a service of Type=notify that "
        "never becomes ready.",
    ),
    "systemd.not_notified": (
        "systemd could not be notified",
        "The watchdog acts, if this lasts.",
    ),
    "thread.died": (
        "A part of the gateway has died",
        "@FIELDGATE_THREADS@. The process ends, to be restarted by systemd. Report the log.",
    ),
    "topic.delivers": (
        "A Kafka topic takes records again",
        "@FIELDGATE_TOPIC@; nothing to do.",
    ),
    "topic.parked": (
        "A Kafka topic takes nothing",
        "@FIELDGATE_TOPIC@: @FIELDGATE_ERROR@\n"
        "Other topics go on. Provision it (fieldgate provision topics) or mend its permission; its "
        "readings wait in the outbox.",
    ),
    "watchdog.moves": ("The watchdog sees progress again", "Nothing to do."),
    "watchdog.stuck": (
        "A part of the gateway makes no progress",
        "systemd restarts the gateway if it stays so. Report the log, with the stacks that follow.",
    ),
}
"""By event: subject, and what to do."""


def as_text() -> str:
    """The catalog in systemd's format."""
    parts = [
        "# fieldgate's messages for journalctl -x; installed to /usr/lib/systemd/catalog.\n"
        "# Printed by python -m gateway.system.logs.catalog: change it there.\n"
    ]
    for event, (subject, text) in sorted(EVENTS.items()):
        parts.append(
            f"# event={event}\n-- {message_id(event)}\nSubject: {subject}\nDefined-By: fieldgate\n"
            f"Documentation: file:/usr/share/doc/fieldgate/operate-mast.md\n\n{wrapped(text)}\n"
        )
    return "\n".join(parts)


def wrapped(text: str) -> str:
    """An explanation in lines for a terminal."""
    return "\n".join(textwrap.fill(line, _WIDTH, break_on_hyphens=False) for line in text.split("\n"))


if __name__ == "__main__":
    sys.stdout.write(as_text())
