"""The emulated device and network: they take the time that they are said to, whatever the machine does meanwhile.

A sleep ends late on a busy machine and never early: lower bounds are exact, and the best of many values shows the upper one.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from factories import a_config
from launching import SERVER, Trained, small_trial, trained
from pipeline import Checkout, small_config, small_experiment

from dpscale.config import load_config
from dpscale.emulation import clock
from dpscale.emulation.link import Link
from dpscale.emulation.network import Network
from dpscale.errors import ConfigError, UserError
from dpscale.explaining.stamps import FULL
from dpscale.phases import PHASE_COLUMNS
from dpscale.planning.plan import plan_trials
from dpscale.trial import Trial
from dpscale.typed import validated
from dpscale.workloads.models import MODELS
from dpscale.world import World

CLOSE = 1.15  # of what is right, and:
LATE_S = 0.005

# The network


def a_network(**changes: float) -> Network:
    """1 ms and 100 MB/s within a node, 5 ms and 10 MB/s between nodes."""
    values = {
        "overhead_s": 0.0,
        "intra_latency_s": 0.001,
        "inter_latency_s": 0.005,
        "intra_bandwidth_GB_per_s": 0.1,
        "inter_bandwidth_GB_per_s": 0.01,
        **changes,
    }
    return validated(Network, values, "network")


@pytest.mark.parametrize(
    ("nodes", "devices_per_node", "size_bytes", "expected_s"),
    [
        (1, 1, 1_000_000, 0.0),
        (1, 2, 1_000_000, 2 * 0.001 + 0.01),  # two steps, each device sends all of it once
        (1, 4, 1_000_000, 6 * 0.001 + 1.5 * 0.01),
        (2, 1, 1_000_000, 2 * 0.005 + 0.1),
        (2, 2, 1_000_000, 4 * 0.001 + 2 * 0.005 + 1.5 * 0.1),  # a ring: the link between nodes is the narrow place
        (4, 2, 100, 2 * (0.001 + 2 * 0.005) + 2 * 100 / (0.92 * 0.01e9)),  # a tree: two levels of nodes
    ],
)
def test_an_all_reduce_takes_the_time_of_a_ring_or_a_tree(
    nodes: int, devices_per_node: int, size_bytes: int, expected_s: float
):
    assert a_network().all_reduce_s(size_bytes, nodes, devices_per_node) == pytest.approx(expected_s, rel=1e-12)
    later = a_network(overhead_s=0.25).all_reduce_s(size_bytes, nodes, devices_per_node)
    assert later == pytest.approx(expected_s + 0.25 * (expected_s > 0), rel=1e-12)


def test_links_that_are_not_on_the_way_do_not_matter():
    assert a_network(inter_bandwidth_GB_per_s=1e-6).all_reduce_s(1000, 1, 4) == a_network().all_reduce_s(1000, 1, 4)
    assert a_network(intra_bandwidth_GB_per_s=1e-6).all_reduce_s(1000, 4, 1) == a_network().all_reduce_s(1000, 4, 1)


def written(network: Network, folder: Path) -> Path:
    path = folder / "network.yaml"
    path.write_text(json.dumps(network.model_dump()))  # JSON is YAML
    return path


def test_a_network_comes_back_from_its_file(tmp_path: Path):
    assert Network.read(written(a_network(), tmp_path)) == a_network()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("intra_latency_s: [", "no YAML"),
        ("", "intra_latency_s: this key is required"),
        ("intra_latency: 1", "did you mean 'intra_latency_s'?"),
        ("{intra_latency_s: -1}", "intra_latency_s = -1"),
    ],
)
def test_a_file_that_is_no_network_is_refused_by_name(text: str | None, said: str, tmp_path: Path):
    path = tmp_path / "network.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as refusal:
        Network.read(path)
    assert str(path) in str(refusal.value)
    assert said in str(refusal.value)


# The link


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[World]:
    """One rank, in a process group of its own."""
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield World(0, 0, node_rank=0, size=1, devices_per_node=1, device=torch.device("cpu"))
    dist.destroy_process_group()


def taking(seconds: float) -> Any:
    """A network on which everything takes so long."""
    return SimpleNamespace(all_reduce_s=lambda *arguments: seconds, noise_percent=0.0)


def test_exchanges_share_the_link_one_after_the_other_while_the_rank_goes_on(alone: World):
    link, moments = Link(taking(0.1), alone), list[float]()
    started_s = clock.now_s()
    arrivals = [link.all_reduce(torch.ones(2)) for _ in range(3)]
    assert not any(arrival.done() for arrival in arrivals)
    for arrival in arrivals:
        assert torch.equal(arrival.wait(), torch.ones(2))
        moments.append(clock.now_s() - started_s)
    assert all(moment >= 0.1 * number for number, moment in enumerate(moments, start=1))


def test_a_link_that_was_free_for_long_is_no_sooner_there(alone: World):
    link = Link(taking(0.05), alone)
    for _ in range(2):
        started_s = clock.now_s()
        link.all_reduce(torch.ones(2)).wait()
        assert clock.now_s() - started_s >= 0.05
        clock.sleep_until(clock.now_s() + 0.1)


def test_what_fails_fails_where_it_is_waited_for(alone: World, monkeypatch: pytest.MonkeyPatch):
    def lost(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("connection closed by peer")

    link = Link(taking(0.0), alone)
    monkeypatch.setattr(dist, "broadcast", lost)
    with pytest.raises(RuntimeError, match="connection closed by peer"):
        link.all_reduce(torch.ones(2)).wait()


def test_ranks_without_a_common_clock_are_refused():
    world: Any = SimpleNamespace(exchange=lambda name: [name, "elsewhere"])
    with pytest.raises(UserError, match=r"one machine for all ranks.*elsewhere"):
        Link(taking(0.0), world)


EXCHANGES, TRANSFER_S, LATE_RANK_S = 9, 0.05, 0.1


def exchange_over_a_noisy_link(rank: int, folder: Path) -> None:
    """The second rank comes late to each exchange; both leave when they were ready and when it had arrived."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)
    network = a_network(intra_latency_s=TRANSFER_S / 2, noise_percent=20)
    link = Link(network, World(rank, rank, 0, 2, 2, torch.device("cpu")))
    moments = []
    for _ in range(EXCHANGES):
        clock.sleep_until(clock.now_s() + rank * LATE_RANK_S)
        ready_s = clock.now_s()
        tensor = link.all_reduce(torch.full((3,), 1.0 + rank)).wait()
        moments.append((ready_s, clock.now_s()))
        assert tensor.tolist() == [3.0] * 3
    (folder / f"{rank}.json").write_text(json.dumps(moments))
    dist.barrier()
    dist.destroy_process_group()


def test_an_exchange_begins_when_the_last_rank_is_ready_and_ends_for_all_at_once(tmp_path: Path):
    ranks = [SERVER.Process(target=exchange_over_a_noisy_link, args=(rank, tmp_path)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert [process.exitcode for process in ranks] == [0, 0]
    first, second = (np.array(json.loads((tmp_path / f"{rank}.json").read_text())) for rank in range(2))
    took_s = second[:, 1] - second[:, 0]  # it waits for nobody
    assert statistics.median(abs(first[:, 1] - second[:, 1])) < LATE_S  # though noise moves each by some 10 ms
    assert np.std(took_s) > 0.05 * TRANSFER_S
    assert np.mean(first[:, 1] - first[:, 0]) > LATE_RANK_S


# Trainings: what the network's file implies, by hand


LAYERS, FORWARD_S, BACKWARD_S = 4, 0.02, 0.04
SIZE_BYTES = 4096


def a_training(transfer_s: float, folder: Path, **changes: Any) -> Trial:
    """Four layers with a bucket each, over links on which each takes `transfer_s` between two ranks of a node, and 10 ms
    more between nodes."""
    network = a_network(
        intra_latency_s=0, inter_latency_s=0.005, intra_bandwidth_GB_per_s=SIZE_BYTES / transfer_s / 1e9
    )
    network = network.model_copy(update={"inter_bandwidth_GB_per_s": network.intra_bandwidth_GB_per_s})
    options = {
        "layers": LAYERS,
        "weights_per_layer": SIZE_BYTES // 4,
        "batch_s": FORWARD_S + BACKWARD_S,
        "sample_s": 0.0,
        "jitter_percent": 0.0,
    }
    fields = {
        "model": "emulated",
        "model_options": options,
        "options": {"network": str(written(network, folder)), "bucket_cap_MiB": SIZE_BYTES / 2**20},
        "steps": 22,
        "warmup_steps": 2,
        "evaluate": False,
        "train_samples": 160,
    }
    return small_trial("emulated_ddp", **fields | changes)


def step_s(transfer_s: float) -> float:
    """Each bucket begins when it is ready and the one before has been transferred; the step ends with the last."""
    arrived_s = 0.0
    for number in range(1, LAYERS + 1):
        ready_s = FORWARD_S + BACKWARD_S * number / LAYERS
        arrived_s = max(ready_s, arrived_s) + transfer_s
    return arrived_s


def steps_of(done: Trained) -> np.ndarray:
    """Times of timed steps, of all ranks."""
    table = done.steps.to_pandas().query("not warmup")
    return table[list(PHASE_COLUMNS)].sum(axis=1).to_numpy()


@pytest.mark.parametrize(
    ("transfer_s", "nodes", "expected_s"),
    [
        (0.004, 1, FORWARD_S + BACKWARD_S + 0.004),  # computing hides all but the last bucket
        (0.030, 1, FORWARD_S + 0.01 + 4 * 0.030),  # the link is busy from the first bucket on
        (0.030, 2, FORWARD_S + 0.01 + 4 * (0.030 + 2 * 0.005)),
    ],
    ids=["compute-bound", "communication-bound", "communication-bound on two nodes"],
)
def test_a_step_takes_what_its_buckets_take_on_the_link(
    transfer_s: float, nodes: int, expected_s: float, data: Path, tmp_path: Path
):
    assert step_s(expected_transfer := transfer_s + 0.01 * (nodes - 1)) == pytest.approx(expected_s), expected_transfer
    found_s = steps_of(
        trained(a_training(transfer_s, tmp_path, nodes=nodes, devices_per_node=2 // nodes), data, tmp_path)
    )
    assert found_s.min() >= expected_s
    assert found_s.min() <= expected_s * CLOSE + LATE_S


def test_an_explained_training_stamps_what_is_emulated(data: Path, tmp_path: Path):
    transfer_s, backward_s = 0.006, 0.008
    trial = a_training(transfer_s, tmp_path)
    short = {**trial.model_options, "batch_s": backward_s * 3 / 2}
    done = trained(replace(trial, explain=True, model_options=short), data, tmp_path)
    assert done.record.explained is not None
    stamps = [block.stamps for block in done.record.explained.blocks if block.control == FULL]
    ready_s, exchanged_s, batch_s = (
        np.concatenate([np.array(getattr(block, name)) for block in stamps])
        for name in ("ready_s", "exchanged_s", "batch_s")
    )
    assert ready_s.shape[1] == LAYERS
    for number in range(LAYERS):
        expected_s = backward_s / 2 + backward_s * (number + 1) / LAYERS
        after_s = ready_s[:, number] - batch_s
        assert after_s.min() >= expected_s
        assert after_s.min() <= expected_s * CLOSE + LATE_S
    exchanges_s = exchanged_s[:, -1] - ready_s[:, 0]
    assert exchanges_s.min() >= LAYERS * transfer_s
    assert exchanges_s.min() <= LAYERS * transfer_s * CLOSE + LATE_S


# The configuration


def planned(**changes: Any) -> list[Trial]:
    strategies = {"over_ethernet": {"base": "emulated_ddp", "network": "ethernet.yaml"} | changes.pop("variant", {})}
    return plan_trials(load_config(a_config(strategies=strategies, **changes)))["quick"]


def test_an_emulated_network_is_an_option_of_a_variant():
    assert {trial.options["network"] for trial in planned()} == {"ethernet.yaml"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"variant": {"network": ""}}, "network = ''"),
        ({"variant": {"newtork": "a.yaml"}}, "did you mean 'network'?"),
        ({"device": "cuda"}, "links are emulated between processes that exchange on the CPU; use device: cpu"),
        ({"explain": True, "variant": {"find_unused_parameters": True}}, "set explain: false in this variant"),
    ],
)
def test_what_can_not_be_emulated_is_refused(changes: dict[str, Any], said: str):
    with pytest.raises(ConfigError) as refusal:
        planned(**changes)
    assert "experiments.quick.strategies.over_ethernet" in str(refusal.value)
    assert said in str(refusal.value)


def test_a_variant_must_say_which_network():
    with pytest.raises(ConfigError, match=r"strategies\.emulated_ddp\.network: this key is required"):
        plan_trials(load_config(a_config(strategies={"emulated_ddp": None})))


@pytest.mark.parametrize("option", [{"layers": 0}, {"batch_s": -1.0}, {"jitter_percent": 31.0}, {"sample_time_s": 1.0}])
def test_times_that_make_no_sense_are_refused(option: dict[str, Any]):
    with pytest.raises(ConfigError, match=next(iter(option))):
        validated(MODELS["emulated"].options, option, "model_options")


@pytest.mark.parametrize(
    "target", ["trials/emulated_ddp/spawn/1x2/r0/record.json", "collectives/spawn/1x2/collectives.json"]
)
def test_a_networks_file_is_an_input_of_what_is_measured_over_it(target: str, tmp_path: Path):
    experiment = small_experiment(
        strategies={"emulated_ddp": {"network": "not/there.yaml"}},
        collectives={"operations": ["all_reduce"], "network": "not/there.yaml"},
    )
    said = Checkout.fresh(tmp_path / "checkout", small_config(experiment)).refused("-n", f"results/small/{target}")
    assert "Missing input files" in said
    assert "not/there.yaml" in said
