"""This process's place in the process group: the only reader of the launch environment."""

from __future__ import annotations

import errno
import gc
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist
import torch.distributed.nn  # first imported within a group, as by optimisers, it keeps the group for ever
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from dpscale.errors import UserError, suggest
from dpscale.launched import Launched
from dpscale.launching.launchers import CONTRACT


@dataclass(frozen=True)
class World:
    """One rank's view: who it is, how many there are, and the device it computes on."""

    rank: int
    local_rank: int
    node_rank: int
    size: int
    devices_per_node: int
    device: torch.device
    nodes: int = 1
    store: Store | None = None  # that ranks met at; None without a process group

    @property
    def device_indices(self) -> list[int]:
        """CUDA devices that this process drives: its own, or all of the node's for a single-process strategy."""
        if self.device.type != "cuda":
            return []
        return list(range(self.devices_per_node)) if self.size == 1 else [self.device.index]

    def say(self, text: str) -> None:
        """A line for the log, from rank 0; others put its number and the time before it."""
        if self.rank == 0:
            print(text, flush=True)

    def synchronize(self) -> None:
        """Wait until every kernel this process queued has finished, on every device that it drives."""
        for index in self.device_indices:
            torch.cuda.synchronize(index)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()

    def largest(self, value: float) -> float:
        """The largest of all ranks' values."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.item()

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def exchange(self, value: object) -> list:
        """Every rank's value on every rank, in the order of ranks."""
        if self.size == 1:
            return [value]
        values: list = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def gather(self, value: object) -> list | None:
        """Every rank's value on rank 0, in the order of ranks; None elsewhere."""
        if self.size == 1:
            return [value]
        values: list | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, values)
        return values


def launched_rank() -> int:
    """This process's global rank, before any process group exists.

    Raises:
        UserError: not started by a launcher.
    """
    if missing := [name for name in CONTRACT if name not in os.environ]:
        raise UserError(f"{', '.join(missing)} not set: start train.py through scripts/launch.py")
    return int(os.environ["RANK"])


def unmet_need(launched: Launched) -> str | None:
    """Why ranks can't do this on this machine, whatever they are to run, or None.

    Raises:
        UserError: CUDA is asked for where no CUDA device is visible at all: a wrong machine, not an unmet need.
    """
    if launched.device == "cuda":
        visible = torch.cuda.device_count()
        if visible == 0:
            raise UserError(
                f"{launched.id}: device: cuda, but no CUDA device is visible here (CUDA_VISIBLE_DEVICES="
                f"{os.environ.get('CUDA_VISIBLE_DEVICES')!r}); run it where there are GPUs, or set device: cpu"
            )
        if visible < launched.devices_per_node:
            return f"needs {launched.devices_per_node} CUDA devices per node: {visible} visible"
    if launched.backend == "mpi" and not dist.is_mpi_available():
        return "needs a torch that was built with MPI: PyPI's is not"
    return None


def meeting_store(host: str, port: int, ranks: int, serves: bool, timeout: timedelta, **extra: bool) -> TCPStore:
    """The store that ranks meet at, on the address that is given: torch alone would open the port on every network of this
    machine, and does so where the address is none of its own, as behind a translating router. The arguments are those of
    TCPStore.
    """
    listening_fd = None
    if serves:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening_fd = socket.create_server((host, port), family=family, backlog=max(128, ranks)).detach()
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return TCPStore(host, port, ranks, serves, timeout, master_listen_fd=listening_fd, **extra)


@contextmanager
def process_group(trial: Launched) -> Iterator[World]:
    """Join the trial's process group for the duration of the block.

    Raises:
        UserError: not started by a launcher, or by one with another world size or node count than the trial's, or a
            network interface is set that this machine does not have.
    """
    rank, local_rank = launched_rank(), int(os.environ["LOCAL_RANK"])
    started = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if started != (trial.world_size, trial.ranks_per_node):
        raise UserError(
            f"{trial.id}: the launcher started {started[0]} ranks, {started[1]} on this node, but the trial asks for "
            f"{trial.world_size}, {trial.ranks_per_node} on each of {trial.nodes} nodes"
        )
    if trial.nodes > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_to(os.environ["MASTER_ADDR"]))
    check_interface()
    device = torch.device("cpu")
    if trial.device == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)  # first of all, or every rank opens a context on device 0
    timeout = timedelta(seconds=trial.collective_timeout_s)
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # torchrun's agent does it itself
    store = meeting_store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), trial.world_size, serves, timeout)
    dist.init_process_group(
        trial.backend,
        store=PrefixStore("ranks", store),
        rank=rank,
        world_size=trial.world_size,
        timeout=timeout,
        device_id=device if trial.device == "cuda" else None,
    )
    world = World(
        rank,
        local_rank,
        int(os.environ["GROUP_RANK"]),
        trial.world_size,
        trial.devices_per_node,
        device,
        trial.nodes,
        PrefixStore("dpscale", store),
    )
    try:
        yield world
        world.barrier()  # leave together: gloo may abort a rank whose peer closes its connections first
    finally:
        dist.destroy_process_group()
        # What lies in cycles, as a model under DDP does, holds the group, and with it gloo's threads: one that has to drop
        # a tensor while the interpreter ends aborts the process, though all is measured and written.
        gc.collect()


def interface_to(address: str) -> str:
    """The interface that this machine reaches an address by. gloo would take the one of its own host name, which on
    many machines is loopback."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # UDP: nothing is sent
        mine = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if mine in (entry.address.partition("%")[0] for entry in addresses):
            return name
    raise UserError(f"no interface of this machine has {mine}, its address towards {address}: set cluster.interface")


def check_interface() -> None:
    """Refuse a GLOO_SOCKET_IFNAME that gloo would only answer with 'Unable to find address'.

    Raises:
        UserError: names the variable and the interfaces that there are.
    """
    name = os.environ.get("GLOO_SOCKET_IFNAME")
    interfaces = [interface for _, interface in socket.if_nameindex()]
    if name is not None and not set(name.split(",")) <= set(interfaces):
        raise UserError(f"GLOO_SOCKET_IFNAME={name}: this machine has no such interface; {suggest(name, interfaces)}")
