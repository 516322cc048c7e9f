"""The look at all nodes before a trial that spans several: what counts as slow, and that a sick rank is named."""

from __future__ import annotations

import subprocess
from itertools import combinations
from pathlib import Path

import pytest
from factories import a_record
from launching import launch_command, launch_environment, small_trial

from dpscale import metrics
from dpscale.launching.attempt import free_port
from dpscale.record import Record
from dpscale.survey import between_rounds, inside_rounds, slow


def times_of(
    nodes: int, ranks_per_node: int, slow_ranks: tuple[int, ...] = (), slow_pair: tuple[int, int] | None = None
):
    """Copies, exchanges inside, and between, of 1 ms; five times that where a slow rank or pair takes part."""

    def pairs_s(rounds):
        return {
            pair: 0.005 if set(pair) & set(slow_ranks) or pair == slow_pair else 0.001
            for pairs in rounds
            for pair in pairs
        }

    copies_s = [0.005 if rank in slow_ranks else 0.001 for rank in range(nodes * ranks_per_node)]
    inside, between = inside_rounds(nodes, ranks_per_node), between_rounds(nodes, ranks_per_node)
    return copies_s, pairs_s(inside), pairs_s(between), ranks_per_node


@pytest.mark.parametrize(("nodes", "ranks_per_node"), [(2, 1), (2, 2), (3, 2), (4, 8), (5, 1)])
def test_every_two_nodes_meet_and_nobody_is_in_two_pairs_at_once(nodes: int, ranks_per_node: int):
    rounds = between_rounds(nodes, ranks_per_node)
    for pairs in rounds:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(ranks) == len(set(ranks))
    met = {(a // ranks_per_node, b // ranks_per_node) for pairs in rounds for a, b in pairs}
    assert met == set(combinations(range(nodes), 2))
    everything = [pair for pairs in rounds for pair in pairs]
    assert len(everything) == len(set(everything))


def test_neighbours_are_on_one_node():
    assert inside_rounds(2, 3) == [[(0, 1), (3, 4)], [(1, 2), (4, 5)]]
    assert inside_rounds(4, 1) == []


@pytest.mark.parametrize(("nodes", "ranks_per_node"), [(2, 1), (2, 2), (4, 8)])
def test_healthy_nodes_are_not_flagged(nodes: int, ranks_per_node: int):
    assert list(slow(*times_of(nodes, ranks_per_node))) == []


@pytest.mark.parametrize(("nodes", "ranks_per_node"), [(2, 2), (3, 1), (4, 8)])
def test_a_slow_rank_is_named_and_its_partners_are_not(nodes: int, ranks_per_node: int):
    last = nodes * ranks_per_node - 1
    copies_s, _, between_s, _ = times_of(nodes, ranks_per_node, slow_ranks=(last,))
    found = list(slow([0.001] * len(copies_s), {}, between_s, ranks_per_node))
    named = "" if ranks_per_node == 1 else f", rank {last}"
    assert found == [f"node {nodes - 1}{named}: exchanges between nodes take 5.0 times as long as usual"]


def test_a_slow_node_is_named_as_a_whole():
    copies_s, inside_s, between_s, _ = times_of(3, 2, slow_ranks=(2, 3))
    found = list(slow(copies_s, inside_s, between_s, 2))
    assert [line.partition(":")[0] for line in found] == ["node 1"] * 3


def test_of_two_nodes_with_one_rank_each_the_copies_tell():
    assert list(slow(*times_of(2, 1, slow_ranks=(1,)))) == ["node 1: copies take 5.0 times as long as usual"]


def test_a_slow_link_between_healthy_ranks_is_a_pair():
    found = list(slow(*times_of(4, 1, slow_pair=(1, 3))))
    assert found == ["ranks 1 (node 1) and 3 (node 3): exchanges between nodes take 5.0 times as long as usual"]


def test_twice_as_long_as_usual_is_still_usual():
    assert list(slow([0.001, 0.001, 0.002], {}, {}, 1)) == []
    assert len(list(slow([0.001, 0.001, 0.0021], {}, {}, 1))) == 1


def test_what_is_slow_is_a_warning_of_the_record():
    assert "node 1: sick" in metrics.warnings(a_record(survey={"slow": ["node 1: sick"]}))
    assert metrics.warnings(a_record(survey=None)) == metrics.warnings(a_record(survey={"slow": []}))


def test_a_slow_rank_of_two_nodes_is_named_in_the_record(data: Path, tmp_path: Path):
    trial = small_trial(devices=2, nodes=2, world_size=4, evaluate=False)
    place = ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    machines = [
        subprocess.Popen(
            [
                *launch_command(trial, data, tmp_path / "trial"),
                f"--node-rank={rank}",
                f"--log={tmp_path / f'{rank}.log'}",
                *place,
            ],
            env=launch_environment(tmp_path, "slow_to_exchange", rank=3, GLOO_SOCKET_IFNAME="lo"),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        said = [machine.communicate(timeout=170)[1] for machine in machines]
    finally:
        for machine in machines:
            machine.kill()
    assert [machine.returncode for machine in machines] == [0, 0], said
    record = Record.read(tmp_path / "trial" / "record.json")
    assert record.survey is not None
    assert any(line.startswith("node 1, rank 3: exchanges between nodes take") for line in record.survey["slow"])
    assert any("node 1, rank 3" in warning for warning in metrics.warnings(record))
    assert "node 1, rank 3" in (tmp_path / "0.log").read_text()
