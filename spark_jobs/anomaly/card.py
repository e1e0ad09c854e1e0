"""The model card: what a version was trained on, how its threshold was chosen, and what it can't do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from spark_jobs.anomaly.features import CONTEXT_LIMIT, SD_FLOOR_MPS, SPEED_FLOOR_MPS
from spark_jobs.anomaly.model import Model
from spark_jobs.anomaly.observations import LEAST_RECOVERY, WINDOW
from spark_jobs.anomaly.training import FOLDS, HIDDEN_UNITS


def model_section(model: Model) -> list[str]:
    """One gateway's section."""
    facts = model.facts
    several = facts.get("gateways", 1) > 1
    whose = f", of {facts['gateways']} gateways with these channels" if several else ""
    channels = [
        f"- {group.quantity}: {', '.join(group.channels)} (features: {', '.join(group.kinds)})"
        for group in model.layout.groups
    ]
    return [
        f"## {model.gateway}",
        "",
        f"Intervals of {model.interval_s} s{whose}: {facts['intervals']} in the period, {facts['excluded']} "
        f"excluded by hand, {facts['unclean']} left out because they, or one of the two before, break a "
        f"rule; {facts['clean']} learnt, on {facts['days']} days.",
        "",
        "Judged, each against the others of its line:",
        "",
        *channels,
        "",
        f"Input of the network, not judged: {', '.join(model.layout.context) or 'nothing'}.",
        "",
        f"Threshold {model.threshold:.3f}: the lowest with at most {facts['false_alarms_asked']:g} alarm "
        "events in 30 days (alarms an hour apart are one event) on four fifths of the days, by networks that "
        f"had not seen them; there were {facts['false_alarm_events']}. On the other fifth, which decided "
        f"neither threshold nor scales, there were {facts['held_out_events']} in {facts['held_out_days']} "
        "days. Scores of all these days, by quantile: "
        + ", ".join(f"{name}: {value:g}" for name, value in facts["scores"].items())
        + f". Training loss {facts['loss']:.4f}, seed {facts['seed']}.",
        "",
    ]


def model_card(
    version: str,
    made: datetime,
    period: str,
    excluded: Sequence[str],
    sections: Sequence[str],
    versions: Mapping[str, str],
    command: str,
) -> str:
    """The card as Markdown."""
    lines = [
        f"# Anomaly model {version}",
        "",
        f"Trained {made:%Y-%m-%d %H:%M} UTC on {period}"
        + (f", without {', '.join(excluded)}" if excluded else "")
        + ".",
        "",
        "```",
        command,
        "```",
        "",
        f"A masked autoencoder (one hidden layer of {HIDDEN_UNITS[0]}, tanh): each channel is hidden in turn "
        "and predicted from the rest of the mast. Deviations are in units of what the network was usually "
        f"off at such a level on days it hadn't seen ({FOLDS} folds of whole days). A score is the worst "
        f"channel's second highest deviation of {WINDOW} intervals.",
        "",
        f"Missing: a channel with less than {LEAST_RECOVERY:.0%} of its readings; hidden from the network, "
        f"not judged. Floors: {SPEED_FLOOR_MPS} m/s (avg), {SD_FLOOR_MPS} m/s (sd). Context counts up to "
        f"{CONTEXT_LIMIT:g} standard deviations.",
        "",
        "It gives no reason why a channel deviates, doesn't see what all channels of a quantity do alike, "
        "has no channel that was not in the period, and takes for normal what was common in it.",
        "",
        "Made with " + ", ".join(f"{name} {number}" for name, number in sorted(versions.items())) + ".",
        "",
        *sections,
    ]
    return "\n".join(lines)
