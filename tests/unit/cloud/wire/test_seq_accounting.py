"""Which channels' missing readings a gateway still has, when it reports no more than how many."""

from __future__ import annotations

from hypothesis import given, strategies as st

from cloud.wire.number_set import NumberSet
from cloud.wire.seq_accounting import ChannelBalance, held_of_channels


def missing(issued: int, *spans: tuple[int, int]) -> ChannelBalance:
    settled = NumberSet()
    for first, last in spans:
        settled.add(first, last)
    return ChannelBalance(issued, 0, 0, 0, 0, 0, 0, settled)


def test_what_is_held_is_the_newest_whatever_the_channels_periods() -> None:
    # A cup at 1 Hz and a barometer at 1/10 Hz, of the same 1,000 s: the last 20 s are on their way.
    balances = {
        "cup": missing(1000, (200, 209), (981, 1000)),
        "baro": missing(100, (99, 100)),
        "sun": missing(1000),
        "aft": missing(1000, (300, 304)),
    }
    assert held_of_channels(balances, 22) == {"cup": 20, "baro": 2, "aft": 0}
    assert held_of_channels(balances, 32) == {"cup": 25, "baro": 2, "aft": 5}
    assert held_of_channels(balances, 99) == {"cup": 30, "baro": 2, "aft": 5}
    assert held_of_channels(balances, 0) == {}
    # 10 s ago: one of the barometer's, eleven of the cup's.
    assert held_of_channels(balances, 12) == {"cup": 10, "baro": 2, "aft": 0}
    assert held_of_channels(balances, 25) == {"cup": 20, "baro": 2, "aft": 3}


_SPANS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 40)), max_size=5)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(500, 5000), _SPANS), max_size=4),
    st.integers(0, 300),
)
def test_it_adds_up_and_no_channel_has_more_than_it_lacks(
    channels: dict[str, tuple[int, list[tuple[int, int]]]], held: int
) -> None:
    balances = {
        name: missing(issued, *((first, min(first + more, issued)) for first, more in spans))
        for name, (issued, spans) in channels.items()
    }
    shares = held_of_channels(balances, held)
    lacking = {name: len(balance.settled) for name, balance in balances.items()}
    assert sum(shares.values()) == min(held, sum(lacking.values()))
    assert all(0 <= shares.get(name, 0) <= count for name, count in lacking.items())
