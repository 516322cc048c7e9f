"""A real SLURM on loopback: munged, slurmctld and one slurmd per node, in a mount namespace of their own.

Run as a script it is the namespace's first process: it starts the daemons, prints `ready`, and stops them by pid when
its standard input closes. `Cluster` is the tests' side: it starts that script and runs commands in its namespace. The
site's own /etc/slurm and its daemons are never seen nor touched: where there are any, nothing is started.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import psutil

NODES = ("node1", "node2")
CPUS_PER_NODE, GPUS_PER_NODE = 8, 4
CONTROLLER_PORT, FIRST_NODE_PORT = 16817, 17001
REQUEUED_WAIT_S = 10  # before a requeued job starts again; SLURM's own 120 s are as long as a credential lives
NODE_STATES = ("sinfo", "--Node", "--noheader", "--partition=main", "--format=%T")  # each node is in every partition
NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "unshare", "nsenter")
START_TIMEOUT_S, STOP_TIMEOUT_S = 30.0, 15.0

SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={requeued_wait_s}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_min_interval=1,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
ReturnToService=2
SlurmdTimeout={slurmd_timeout_s}
MinJobAge=300
KillWait=30
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=patient Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""


def why_not() -> str | None:
    """Why no cluster can be started here, or None."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        return f"{', '.join(missing)} not installed (Debian: apt install slurmctld slurmd slurm-client munge)"
    if os.geteuid() != 0:
        return "needs root for a mount namespace of its own"
    if any(Path("/etc/slurm").glob("slurm*.conf")):
        return "there is a slurm.conf in /etc/slurm: a site's own SLURM is left alone"
    daemons = {"munged", "slurmctld", "slurmd"}
    alive = [process for process in psutil.process_iter(["name", "status"]) if process.info["status"] != "zombie"]
    if running := sorted(daemons & {process.info["name"] for process in alive}):
        return f"{', '.join(running)} already running: somebody's SLURM is left alone"
    return None


class Cluster:
    """The tests' side: commands run where the daemons' configuration is seen."""

    def __init__(self, folder: Path, slurmd_timeout_s: int = 30) -> None:
        self.folder = folder
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, str(folder)]
        command.append(str(slurmd_timeout_s))
        self.holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout is not None
        line = self.holder.stdout.readline()
        if line.strip() != "ready":
            self.stop()
            raise RuntimeError(f"the cluster did not start: {line}{self.logs()}")

    def prefix(self, folder: Path) -> list[str]:
        """What a command begins with to run in the cluster's namespace and in `folder`."""
        return ["nsenter", f"--target={self.holder.pid}", "--mount", f"--wd={folder}", "--"]

    def run(self, *command: str, folder: Path = Path("/"), timeout_s: float = 60) -> str:
        done = subprocess.run(
            [*self.prefix(folder), *command], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def queue(self) -> list[str]:
        """Ids of all jobs that are not done."""
        return self.run("squeue", "--noheader", "--format=%i").split()

    def pid(self, daemon: str) -> int:
        """Of slurmctld, or of slurmd-<node>."""
        return int((self.folder / f"{daemon}.pid").read_text())

    def start_slurmd(self, node: str) -> None:
        """Start a node's daemon again after a test killed it."""
        self.run("slurmd", "-N", node)
        self.wait_for_idle_nodes()

    def wait_for_idle_nodes(self, timeout_s: float = START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            states = self.run(*NODE_STATES).split()
            if states == ["idle"] * len(NODES):
                return
            time.sleep(0.2)
        raise RuntimeError(f"nodes are {states}, not idle\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        self.holder.wait(timeout=2 * STOP_TIMEOUT_S)


def hold(folder: Path, slurmd_timeout_s: int, control: IO[str]) -> None:
    """Inside the namespace: write the configuration, start the daemons, wait for the end of input, stop them."""
    write_configuration(folder, slurmd_timeout_s)
    mount(folder / "etc-slurm", Path("/etc/slurm"))
    mount(folder / "hosts", Path("/etc/hosts"))
    try:
        start("munged", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
              f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed")  # fmt: skip
        start("slurmctld")
        for node in NODES:
            start("slurmd", "-N", node)
        wait_until_idle()
        print("ready", flush=True)
        control.read()
        cancel_all_jobs()
    finally:
        stop_all(folder)


def write_configuration(folder: Path, slurmd_timeout_s: int) -> None:
    etc = folder / "etc-slurm"
    for path in (etc, folder / "state"):
        path.mkdir(parents=True)
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    host = socket.gethostname()
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={FIRST_NODE_PORT + index} CPUs={CPUS_PER_NODE} "
        f"CoresPerSocket={CPUS_PER_NODE} RealMemory=20000 Gres=gpu:{GPUS_PER_NODE} State=UNKNOWN"
        for index, node in enumerate(NODES)
    )
    (etc / "slurm.conf").write_text(
        SLURM_CONF.format(
            host=host,
            controller_port=CONTROLLER_PORT,
            folder=folder,
            nodes=nodes,
            slurmd_timeout_s=slurmd_timeout_s,
            requeued_wait_s=REQUEUED_WAIT_S,
        )
    )
    # a gpu without a File counts 0: any character devices do as stand-ins
    (etc / "gres.conf").write_text(
        f"AutoDetect=off\nNodeName={NODES[0][:-1]}[1-{len(NODES)}] Name=gpu File=/dev/tty[10-{9 + GPUS_PER_NODE}]\n"
    )
    names = " ".join([*NODES, host])
    (folder / "hosts").write_text(f"127.0.0.1 localhost {names}\n")


def mount(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)


def start(*command: str) -> None:
    """Start a daemon; it puts itself in the background."""
    subprocess.run(command, check=True, timeout=START_TIMEOUT_S, stdout=sys.stderr)


def wait_until_idle() -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    states = ""
    while time.monotonic() < deadline:
        done = subprocess.run(NODE_STATES, capture_output=True, text=True, timeout=30, check=False)
        states = done.stdout
        if states.split() == ["idle"] * len(NODES):
            return
        time.sleep(0.2)
    raise RuntimeError(f"nodes are {states!r}, not idle")


def cancel_all_jobs() -> None:
    """Job steps are nobody's children: only SLURM ends them."""
    subprocess.run(["scancel", "--quiet", f"--user={os.getuid()}"], timeout=30, check=False)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        jobs = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, timeout=30, check=False)
        if not jobs.stdout.strip():
            return
        time.sleep(0.2)


def stop_all(folder: Path) -> None:
    """Stop every daemon by the pid that it wrote down, job steps too, and wait for their end."""
    processes = []
    for path in sorted(folder.glob("*.pid"), key=lambda path: path.name == "munged.pid"):
        try:
            processes.append(psutil.Process(int(path.read_text())))
        except (psutil.NoSuchProcess, ValueError):
            continue
    steps = [child for process in processes for child in process.children(recursive=True)]
    for process in [*steps, *processes]:
        try:
            process.send_signal(signal.SIGTERM)
        except psutil.NoSuchProcess:
            continue
    for process in psutil.wait_procs([*steps, *processes], timeout=STOP_TIMEOUT_S)[1]:
        process.kill()


if __name__ == "__main__":
    hold(Path(sys.argv[1]), int(sys.argv[2]), sys.stdin)
