"""Edges counted by the kernel's own numbers: exact, also where its buffer drops events."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from drivers.hardware import gpio_chip
from drivers.hardware.gpio_chip import ChipCounter
from drivers.interface import BoardError, ReadError
from tests.unit.drivers.hardware import emulated_kernel
from tests.unit.drivers.hardware.emulated_kernel import EmulatedKernel, Line, LineEvent

HEADER = Path("/usr/include/linux/gpio.h")
LAYOUTS = {
    "gpiochip_info": (gpio_chip.CHIPINFO, emulated_kernel.ChipInfo),
    "gpio_v2_line_info": (gpio_chip.LINE_INFO, emulated_kernel.LineInfo),
    "gpio_v2_line_request": (gpio_chip.LINE_REQUEST, emulated_kernel.LineRequest),
    "gpio_v2_line_values": (gpio_chip.LINE_VALUES, emulated_kernel.LineValues),
    "gpio_v2_line_event": (gpio_chip.LINE_EVENT, emulated_kernel.LineEvent),
}
NUMBERS = {
    "GPIO_GET_CHIPINFO_IOCTL": (gpio_chip.GET_CHIPINFO, emulated_kernel.GET_CHIPINFO),
    "GPIO_V2_GET_LINEINFO_IOCTL": (gpio_chip.GET_LINE_INFO, emulated_kernel.GET_LINE_INFO),
    "GPIO_V2_GET_LINE_IOCTL": (gpio_chip.GET_LINE, emulated_kernel.GET_LINE),
    "GPIO_V2_LINE_GET_VALUES_IOCTL": (gpio_chip.GET_VALUES, emulated_kernel.GET_VALUES),
    "GPIO_V2_LINE_FLAG_USED": (gpio_chip.FLAG_USED, 1),
    "GPIO_V2_LINE_FLAG_INPUT": (gpio_chip.FLAG_INPUT, 4),
    "GPIO_V2_LINE_FLAG_EDGE_FALLING": (gpio_chip.FLAG_EDGE_FALLING, 0x20),
    "GPIO_V2_LINE_FLAG_BIAS_PULL_UP": (gpio_chip.FLAG_PULL_UP, 0x100),
    "GPIO_V2_LINE_SET_VALUES_IOCTL": (gpio_chip.SET_VALUES, emulated_kernel.SET_VALUES),
    "GPIO_V2_LINE_FLAG_OUTPUT": (gpio_chip.FLAG_OUTPUT, emulated_kernel.OUTPUT),
    "GPIO_V2_LINE_FLAG_BIAS_PULL_DOWN": (gpio_chip.FLAG_PULL_DOWN, 0x200),
    "GPIO_V2_LINE_ATTR_ID_OUTPUT_VALUES": (gpio_chip.OUTPUT_VALUES_ID, 2),
    "sizeof(struct gpio_v2_line_config_attribute)": (gpio_chip.OUTPUT_VALUES.size, 24),
    "16 * GPIO_V2_LINES_MAX": (gpio_chip.BUFFERED_EVENTS, 1024),
    "GPIO_V2_LINE_EVENT_FALLING_EDGE": (2, 2),
}
MEMBERS = {
    ("gpio_v2_line_event", "timestamp_ns"): 0,
    ("gpio_v2_line_event", "line_seqno"): 20,
    ("gpio_v2_line_request", "consumer"): 256,
    ("gpio_v2_line_request", "config.flags"): 288,
    ("gpio_v2_line_request", "num_lines"): 560,
    ("gpio_v2_line_request", "config.attrs"): 320,
    ("gpio_v2_line_config_attribute", "attr.values"): 8,
    ("gpio_v2_line_config_attribute", "mask"): 16,
    ("gpio_v2_line_request", "event_buffer_size"): 564,
    ("gpio_v2_line_request", "fd"): 588,
    ("gpio_v2_line_info", "consumer"): 32,
    ("gpio_v2_line_info", "offset"): 64,
    ("gpio_v2_line_info", "flags"): 72,
    ("gpiochip_info", "label"): 32,
}


@pytest.mark.skipif(not HEADER.exists(), reason="the kernel's headers aren't installed")
def test_layouts_are_those_of_the_kernels_header(tmp_path: Path) -> None:
    shown = [
        *(f"sizeof(struct {name})" for name in LAYOUTS),
        *NUMBERS,
        *(f"offsetof(struct {name}, {member})" for name, member in MEMBERS),
    ]
    lines = "".join(f'printf("%lu\\n", (unsigned long)({what}));' for what in shown)
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <stdio.h>\n#include <stddef.h>\n#include <linux/gpio.h>\n"
        f"int main(void) {{ {lines} return 0; }}\n"
    )
    subprocess.run(["gcc", "-o", tmp_path / "layout", source], check=True, timeout=60)
    printed = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True, timeout=60)
    sizes = dict(zip(shown, map(int, printed.stdout.split()), strict=True))
    expected = {
        **{f"sizeof(struct {name})": layout.size for name, (layout, _) in LAYOUTS.items()},
        **{name: ours for name, (ours, _) in NUMBERS.items()},
        **{f"offsetof(struct {name}, {member})": offset for (name, member), offset in MEMBERS.items()},
    }
    assert sizes == expected


def test_the_emulated_kernel_has_the_same_layouts() -> None:
    for layout, structure in LAYOUTS.values():
        assert bytes(structure()) == bytes(layout.size)
    for ours, emulated in NUMBERS.values():
        assert ours == emulated
    assert LineEvent.line_seqno.offset == MEMBERS["gpio_v2_line_event", "line_seqno"]


def times(count: int, from_ns: int = 0, step_ns: int = 1_000_000) -> list[int]:
    return [from_ns + step_ns * number for number in range(count)]


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12), st.booleans())
def test_every_edge_counts_also_those_the_buffer_drops(batches: list[int], tells_interrupts: bool) -> None:
    kernel = EmulatedKernel(tells_interrupts=tells_interrupts)
    counter = ChipCounter(kernel, 17)
    for batch in batches:
        kernel.fall(17, times(batch))
        edges = counter.take()
        assert (edges.count, edges.lost, edges.crowded) == (batch, False, False)
        assert list(edges.times_ns) == times(batch)[-1024:]


def test_the_pin_is_claimed_as_a_pulled_up_input_and_the_chip_is_closed_again() -> None:
    kernel = EmulatedKernel()
    counter = ChipCounter(kernel, 27)
    # What is requested, byte by byte, is asserted where the emulated kernel takes it apart.
    assert kernel.taken == {27: "fieldgate-27"}
    assert [type(opened) for opened in kernel.open_fds.values()] == [Line]
    line = kernel.line(27)
    assert line is not None
    assert line.events.maxlen == 1024
    counter.close()
    counter.close()
    assert (kernel.taken, kernel.open_fds) == ({}, {})
    assert counter.take().count == 0
    with pytest.raises(ReadError, match="released"):
        counter.is_high()


def test_numbers_that_begin_again_after_four_thousand_million_edges() -> None:
    kernel = EmulatedKernel(tells_interrupts=False)
    counter = ChipCounter(kernel, 17)
    line = kernel.line(17)
    assert line is not None
    line.seqno = 0xFFFF_FFFC
    kernel.fall(17, times(1))
    counter.take()
    kernel.fall(17, times(7))
    edges = counter.take()
    assert (edges.count, edges.lost, len(edges.times_ns)) == (7, False, 7)


@given(st.sets(st.integers(0, 19), max_size=19))
def test_times_are_those_after_the_last_gap(dropped: set[int]) -> None:
    kernel = EmulatedKernel()
    counter = ChipCounter(kernel, 17)
    kernel.fall(17, times(21))
    line = kernel.line(17)
    assert line is not None
    kept = [number for number in range(21) if number not in dropped]
    events = list(line.events)
    line.events.clear()
    line.events.extend(events[number] for number in kept)
    edges = counter.take()
    assert (edges.count, edges.lost) == (21, False)
    assert edges.times_ns == times(21)[max(dropped, default=-1) + 1 :]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=12))
def test_edges_too_close_for_an_event_of_their_own_count_and_are_reported(
    seconds: list[tuple[int, int]],
) -> None:
    kernel = EmulatedKernel()
    counter = ChipCounter(kernel, 17)
    unreported = 0
    for alone, crowded in seconds:
        kernel.fall(17, times(alone))
        kernel.crowd(17, crowded)
        edges = counter.take()
        assert (edges.count, edges.lost) == (alone + crowded, False)
        # One may be an edge whose event is on its way.
        unreported += crowded
        assert edges.crowded == (unreported > 1)
        unreported = 0 if edges.crowded else unreported


def test_an_interrupt_whose_event_is_on_its_way_is_no_crowd() -> None:
    kernel = EmulatedKernel()
    counter = ChipCounter(kernel, 17)
    for _ in range(5):
        kernel.crowd(17, 1)
        edges = counter.take()
        assert (edges.count, edges.crowded) == (1, False)
        line = kernel.line(17)
        assert line is not None
        # The event comes after the reading: its interrupt has been counted.
        line.interrupts[1] -= 1
        kernel.fall(17, times(1))
        line.interrupts[line.seqno % 2] -= 1
        line.interrupts[1] += 1
        edges = counter.take()
        assert (edges.count, edges.crowded) == (0, False)


def test_each_processors_count_of_interrupts_has_32_bits() -> None:
    kernel = EmulatedKernel()
    counter = ChipCounter(kernel, 17)
    kernel.crowd(17, 0xFFFF_FFFE)
    assert counter.take().count == 0xFFFF_FFFE
    kernel.crowd(17, 5)
    assert counter.take().count == 5


def test_a_kernel_that_repeats_its_numbers_is_not_believed() -> None:
    kernel = EmulatedKernel()
    counter = ChipCounter(kernel, 17)
    kernel.fall(17, times(3))
    line = kernel.line(17)
    assert line is not None
    line.seqno = 1
    kernel.fall(17, times(1))
    assert counter.take().lost


@given(st.lists(st.integers(0, 200), min_size=1, max_size=10))
def test_edges_that_come_while_they_are_taken_are_counted_once(batches: Sequence[int]) -> None:
    kernel = EmulatedKernel()
    counter = ChipCounter(kernel, 17)

    def turn() -> None:
        for batch in batches:
            kernel.fall(17, times(batch))

    thread = threading.Thread(target=turn)
    thread.start()
    total = 0
    while thread.is_alive():
        total += counter.take().count
    thread.join(60)
    assert total + counter.take().count == sum(batches)


def test_the_chip_is_found_by_its_label() -> None:
    chips = {
        "/dev/gpiochip0": "gpio-brcmstb",
        "/dev/gpiochip10": "raspberrypi-exp-gpio",
        "/dev/gpiochip4": "pinctrl-rp1",
    }
    kernel = EmulatedKernel(chips, forbidden=["/dev/gpiochip0"])
    ChipCounter(kernel, 17)
    assert len(kernel.open_fds) == 1


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (EmulatedKernel({}), r"there is no /dev/gpiochip\* with a Raspberry Pi's header pins"),
        (EmulatedKernel({"/dev/gpiochip0": "INT33FC:00"}), r"there is no /dev/gpiochip\*"),
        (EmulatedKernel(old=True), "older than 5.10"),
        (EmulatedKernel(forbidden=["/dev/gpiochip0"]), "/dev/gpiochip0 may not be opened: .*group 'gpio'"),
        (EmulatedKernel(taken={17: "spi0 CS0"}), "BCM pin 17 is in use by 'spi0 CS0': .*another pin"),
        (EmulatedKernel(taken={17: ""}), "BCM pin 17 is in use by another program"),
    ],
)
def test_a_pin_that_cant_be_had_names_the_cause(kernel: EmulatedKernel, message: str) -> None:
    with pytest.raises(BoardError, match=message):
        ChipCounter(kernel, 17)
    assert kernel.open_fds == {}


def test_the_level_and_a_chip_that_goes_away() -> None:
    kernel = EmulatedKernel()
    counter = ChipCounter(kernel, 17)
    assert counter.is_high()
    kernel.low.add(17)
    assert not counter.is_high()
    kernel.broken = True
    with pytest.raises(ReadError, match=r"interrupts of BCM pin 17 can't be read \(.*No such file"):
        counter.take()
    numbers = EmulatedKernel(tells_interrupts=False)
    counter_by_numbers = ChipCounter(numbers, 17)
    numbers.broken = True
    with pytest.raises(ReadError, match=r"events of BCM pin 17 can't be read \(.*No such device\)"):
        counter_by_numbers.take()
    with pytest.raises(ReadError, match=r"level of BCM pin 17 can't be read"):
        counter.is_high()
