"""MQTT topic filters: which are valid, and which of them can match the same topic (MQTT 5, section 4.7)."""

from __future__ import annotations

from itertools import zip_longest

MAX_TOPIC_BYTES = 65_535


def filter_problem(topic_filter: str) -> str | None:
    """What is wrong with a filter, or None."""
    problem = _text_problem(topic_filter)
    if problem is not None:
        return problem
    if topic_filter.startswith("$share/"):
        return "shared subscriptions ($share) aren't supported: give the filter alone"
    levels = topic_filter.split("/")
    for depth, level in enumerate(levels):
        if "#" in level and (level != "#" or depth != len(levels) - 1):
            return '"#" must stand alone at the end, after a "/"'
        if "+" in level and level != "+":
            return '"+" must stand alone between slashes'
    return None


def topic_root_problem(root: str) -> str | None:
    """What is wrong with the first levels of a topic, or None."""
    problem = _text_problem(root)
    if problem is not None:
        return problem
    if "+" in root or "#" in root:
        return 'must not have the wildcards "+" and "#": it is where topics begin, such as "fieldgate"'
    if root.startswith("$"):
        return 'must not begin with "$": such topics are the broker\'s own'
    if "" in root.split("/"):
        return "must not begin or end with a slash, nor have an empty level"
    return None


def overlap(one: str, other: str) -> bool:
    """True where some topic matches both filters."""
    ones, others = one.split("/"), other.split("/")
    # A wildcard in the first level doesn't match the broker's own topics.
    if (ones[0].startswith("$") and others[0] in ("+", "#")) or (
        others[0].startswith("$") and ones[0] in ("+", "#")
    ):
        return False
    for left, right in zip_longest(ones, others):
        # "#" also matches its parent level, so it may stand beside nothing.
        if left == "#" or right == "#":
            return True
        if left is None or right is None:
            return False
        if left != right and left != "+" and right != "+":
            return False
    return True


def wildcards(topic_filter: str) -> int:
    """How many wildcards a filter has."""
    return sum(level in ("+", "#") for level in topic_filter.split("/"))


def _text_problem(text: str) -> str | None:
    if not text:
        return "must not be empty"
    if "\0" in text:
        return "must not contain a null character"
    if len(text.encode()) > MAX_TOPIC_BYTES:
        return f"must be at most {MAX_TOPIC_BYTES} bytes"
    return None
