"""Collectives: their bandwidths, that every result's values are checked, and how they are timed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import SERVER

from dpscale.collectives import timing
from dpscale.collectives.exchanges import Exchange, WrongValues, exchange_of
from dpscale.collectives.operations import ITEM_BYTES, OPERATIONS, algbw_GB_per_s, busbw_GB_per_s, count_of
from dpscale.world import World

DTYPES = list(ITEM_BYTES)
ROOT_ONLY = {"reduce", "gather"}


def world_of(rank: int, size: int) -> World:
    return World(rank, rank, 0, size, size, torch.device("cpu"))


# Bandwidths


@pytest.mark.parametrize(
    ("operation", "factor"),  # nccl-tests, doc/PERFORMANCE.md and GetBw of its sources, for 4 ranks
    [
        ("all_reduce", 1.5),
        ("reduce_scatter", 0.75),
        ("all_gather", 0.75),
        ("all_to_all", 0.75),
        ("scatter", 0.75),
        ("gather", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send_recv", 1.0),
    ],
)
def test_bus_bandwidth_is_nccl_tests_own(operation: str, factor: float):
    assert busbw_GB_per_s(operation, 3_000_000_000, 2.0, 4) == pytest.approx(1.5 * factor)


def test_algorithm_bandwidth_is_size_over_time_in_decimal_gigabytes():
    assert algbw_GB_per_s(64 * 2**20, 0.01) == pytest.approx(6.7108864)


def test_a_size_is_cut_to_equal_parts_where_an_operation_splits_it():
    assert count_of("all_reduce", 4096, "float32", 3) == 1024
    assert count_of("all_gather", 4096, "float32", 3) == 1023
    assert count_of("scatter", 8, "float32", 4) == 0


# Values


def check_all(rank: int, size: int, folder: Path) -> None:
    """Every operation and dtype, once and three times on end, on an odd number of elements; leaves what was checked."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=size)
    found = {}
    for operation in OPERATIONS:
        for dtype in DTYPES:
            exchange = exchange_of(operation, 1003 * ITEM_BYTES[dtype], dtype, world_of(rank, size))
            for calls in (1, 3):
                if calls > exchange.most_calls or (calls > 1 and not exchange.repeatable):
                    continue
                exchange.fill()
                for _ in range(calls):
                    exchange.call()
                found[f"{operation}/{dtype}/{calls}"] = exchange.check(calls)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("size", [2, 4])
def test_every_operation_gives_the_right_values_in_every_dtype(size: int, tmp_path: Path):
    ranks = [SERVER.Process(target=check_all, args=(rank, size, tmp_path)) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert [process.exitcode for process in ranks] == [0] * size
    for rank in range(size):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        for operation in OPERATIONS:
            for dtype in DTYPES:
                receives = rank == 0 or operation not in ROOT_ONLY
                assert found[f"{operation}/{dtype}/1"] == int(receives), (operation, dtype)
        assert found["all_reduce/float32/3"] == 3  # each takes up the last one's result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_wrong_result_is_found(operation: str, dtype: str):
    for rank in range(4):
        exchange = exchange_of(operation, 1003 * ITEM_BYTES[dtype], dtype, world_of(rank, 4))
        exchange.fill()
        if exchange.result is None:
            continue
        if operation != "broadcast" or rank != 0:
            with pytest.raises(WrongValues, match=f"rank {rank}, {operation} of"):
                exchange.check(1)  # nothing was exchanged
        exchange.result.copy_(exchange.expected)
        assert exchange.check(1) == 1
        for damaged in (0, len(exchange.result) - 1):
            right = exchange.result[damaged].clone()
            exchange.result[damaged] += 1
            with pytest.raises(WrongValues, match=f"element {damaged} of"):
                exchange.check(1)
            exchange.result[damaged] = right
        exchange.result.copy_(exchange.expected.roll(1))  # at the wrong place
        with pytest.raises(WrongValues):
            exchange.check(1)


@pytest.mark.parametrize("operation", ["all_gather", "all_to_all", "gather"])
def test_parts_in_the_wrong_order_are_found(operation: str):
    exchange = exchange_of(operation, 4096, "float32", world_of(0, 4))
    parts = exchange.expected.chunk(4)
    exchange.result.copy_(torch.cat([parts[1], parts[0], *parts[2:]]))
    with pytest.raises(WrongValues):
        exchange.check(1)


@pytest.mark.parametrize("missing", [0, 3])
def test_a_sum_that_lacks_a_rank_is_found(missing: int):
    whole = exchange_of("all_reduce", 4096, "bfloat16", world_of(0, 4))
    other = exchange_of("all_reduce", 4096, "bfloat16", world_of(missing, 4))
    other.fill()
    whole.result.copy_(whole.expected - other.result)
    with pytest.raises(WrongValues):
        whole.check(1)


def test_not_a_number_is_wrong():
    exchange = exchange_of("broadcast", 4096, "float32", world_of(1, 2))
    exchange.result.copy_(exchange.expected)
    exchange.result[5] = float("nan")
    with pytest.raises(WrongValues, match="element 5"):
        exchange.check(1)


@pytest.mark.parametrize("ranks", [2, 3, 64])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8"])
def test_all_reduces_on_end_never_overflow(dtype: str, ranks: int):
    exchange = exchange_of("all_reduce", 4096, dtype, world_of(0, ranks))
    largest = exchange.expected.double().max().item() * float(ranks) ** (exchange.most_calls - 1)
    limit = torch.finfo if exchange.expected.is_floating_point() else torch.iinfo
    assert exchange.most_calls >= 1
    assert largest <= limit(exchange.expected.dtype).max


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_reduces_on_end_are_right_up_to_rounding_and_one_wrong_element_is_found(dtype: str):
    exchange = exchange_of("all_reduce", 4096, dtype, world_of(0, 3))
    exchange.result.copy_(exchange.expected)
    for _ in range(exchange.most_calls - 1):
        exchange.result.mul_(3)  # what three equal ranks give
    assert exchange.check(exchange.most_calls) == exchange.most_calls
    exchange.result[17] = 0
    with pytest.raises(WrongValues, match="element 17 of"):
        exchange.check(exchange.most_calls)


# Times


class Calls:
    """Calls, on a clock on which each takes `call_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call_s: float) -> None:
        self.now_s = 0.0
        monkeypatch.setattr("dpscale.measure.time.perf_counter", lambda: self.now_s)
        self.call_s = call_s

    def call(self) -> None:
        self.now_s += self.call_s

    def exchange(self, **changes: Any) -> Exchange:
        result = torch.zeros(1)
        return Exchange(name="x", call=self.call, fill=lambda: None, result=result, expected=result, **changes)


def test_short_calls_are_timed_in_blocks(monkeypatch: pytest.MonkeyPatch):
    timed = timing.time_exchange(Calls(monkeypatch, 20e-6).exchange(), world_of(0, 1), blocks=30, seconds=1)
    assert timed.calls == pytest.approx(timing.BLOCK_S / 20e-6, abs=1)
    assert timed.times_s == pytest.approx([timed.calls * 20e-6] * 30)


def test_long_calls_are_timed_one_by_one_and_fewer(monkeypatch: pytest.MonkeyPatch):
    timed = timing.time_exchange(Calls(monkeypatch, 0.05).exchange(), world_of(0, 1), blocks=100, seconds=1)
    assert (timed.calls, len(timed.times_s)) == (1, 20)


def test_at_least_ten_blocks_are_timed_however_long_they_take(monkeypatch: pytest.MonkeyPatch):
    timed = timing.time_exchange(Calls(monkeypatch, 3.0).exchange(), world_of(0, 1), blocks=100, seconds=1)
    assert len(timed.times_s) == 10


def test_every_block_is_checked_and_warmed_up_apart(monkeypatch: pytest.MonkeyPatch):
    timed = timing.time_exchange(Calls(monkeypatch, 0.05).exchange(), world_of(0, 1), blocks=10, seconds=1)
    assert timed.checked == 10 + timing.WARMUP_BLOCKS


def test_what_can_not_be_repeated_is_checked_on_a_call_of_its_own_off_the_clock(monkeypatch: pytest.MonkeyPatch):
    calls = Calls(monkeypatch, 0.001)
    timed = timing.time_exchange(calls.exchange(repeatable=False), world_of(0, 1), blocks=10, seconds=1)
    assert timed.times_s == pytest.approx([timed.calls * 0.001] * 10)
    assert timed.checked == 10 + timing.WARMUP_BLOCKS
