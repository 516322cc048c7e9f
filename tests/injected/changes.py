"""What tests change inside the processes of a real launch: faults that it must survive, and eyes on what it does.

A change that concerns one rank takes its number from DPSCALE_TEST_RANK; what it sees goes to files in DPSCALE_TEST_OUT.
torch and dpscale are imported inside: see sitecustomize.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

CHANGES: dict[str, tuple[str, Callable[[], None]]] = {}  # name -> (the module after whose import it is made, it)


def after(module: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(change: Callable[[], None]) -> Callable[[], None]:
        CHANGES[change.__name__] = (module, change)
        return change

    return register


def this_rank() -> int:
    return int(os.environ["RANK"])


def is_chosen_rank() -> bool:
    return os.environ["DPSCALE_TEST_RANK"] in (str(this_rank()), "all")


def leave(name: str, content: object) -> None:
    """Put one rank's finding into a file that is whole as soon as it is there."""
    path = Path(os.environ["DPSCALE_TEST_OUT"]) / f"{name}-{this_rank()}.json"
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(content))
    temporary.rename(path)


# What a test wants to see


@after("dpscale.training")
def announce_ranks() -> None:
    """Each rank says its pid as soon as it trains."""
    from dpscale.training import Training

    build = Training.__init__

    def announced(self, *arguments):
        build(self, *arguments)
        leave("pid", os.getpid())

    Training.__init__ = announced


@after("dpscale.workloads.loading")
def count_samples() -> None:
    """The loader itself counts what it hands out, by split: the training set is the larger one."""
    from dpscale.workloads.loading import Loader

    batches, counts = Loader.batches, {}

    def counted(self, *arguments):
        for images, labels in batches(self, *arguments):
            counts[str(self.num_samples)] = counts.get(str(self.num_samples), 0) + len(images)
            leave("samples", counts)
            yield images, labels

    Loader.batches = counted


@after("dpscale.training")
def keep_weights() -> None:
    """The weights as they are at the end of the training, of each rank."""
    from dpscale.training import Training

    finish = Training.finish

    def kept(self):
        finish(self)
        leave("weights", [tensor.flatten().tolist() for tensor in self.weights()])

    Training.finish = kept


@after("dpscale.evaluation")
def batch_norm_model() -> None:
    """A ConvNet with batch norm; its buffers after the training, and as evaluation sees them."""
    from torch import nn

    from dpscale import evaluation
    from dpscale.training import Training
    from dpscale.workloads.models import MODELS

    def build(options, samples):
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 81, samples.classes)
        ).append(nn.LogSoftmax(dim=1))

    MODELS["convnet"] = replace(MODELS["convnet"], build=build)
    sums = evaluation._sums

    def buffers(training):
        return {name: buffer.flatten().tolist() for name, buffer in training.plain_model.named_buffers()}

    def seen(test, training, batch_size, world):
        leave("evaluated", buffers(training))
        return sums(test, training, batch_size, world)

    finish = Training.finish

    def finished(self):
        leave("trained", buffers(self))
        finish(self)

    evaluation._sums, Training.finish = seen, finished


@after("dpscale.training")
def apex_on_cpu() -> None:
    """The row `apex` does without a GPU: for the stand-in."""
    from dpscale.strategies import STRATEGIES
    from dpscale.strategies.base import nothing_needed

    STRATEGIES["apex"] = replace(STRATEGIES["apex"], needs=nothing_needed)


# What goes wrong


@after("dpscale.training")
def forgets_to_synchronise() -> None:
    """A row that claims to exchange gradients, and does not."""
    from dpscale.strategies import STRATEGIES, independent

    STRATEGIES["ddp"] = replace(independent.ROW, exchanges_gradients=True)


@after("dpscale.training")
def forgets_to_synchronise_later() -> None:
    """A row that exchanges gradients in the gate's step and in the first of the training, and no more."""
    from dpscale.strategies import STRATEGIES, allreduce

    class Forgetful(allreduce.AllreduceReplica):
        exchanges = 0

        def exchange(self) -> None:
            if self.exchanges == 0:
                super().exchange()
            self.exchanges += 1

    STRATEGIES["allreduce"] = replace(allreduce.ROW, replica=Forgetful)


def scales_gradients_by(factor: Callable[[int], float]) -> None:
    """A row whose ranks agree, on a step of another length: `factor` of the number of ranks times the right one."""
    from dpscale.strategies import STRATEGIES, allreduce

    class Scaling(allreduce.AllreduceReplica):
        def exchange(self) -> None:
            super().exchange()
            for parameter in self.model.parameters():
                parameter.grad.mul_(factor(self.world.size))

    STRATEGIES["allreduce"] = replace(allreduce.ROW, replica=Scaling)


@after("dpscale.training")
def adds_instead_of_averaging() -> None:
    scales_gradients_by(lambda ranks: ranks)


@after("dpscale.training")
def averages_twice() -> None:
    scales_gradients_by(lambda ranks: 1 / ranks)


@after("dpscale.training")
def lets_buffers_drift() -> None:
    """Nobody gives the ranks the same running statistics in the end."""
    from dpscale.training import Training

    Training.become_one = lambda self: self.replica.agree()


@after("dpscale.training")
def nan_weights() -> None:
    """The last update of the chosen rank left NaN, which no loss shows."""
    import torch

    from dpscale.training import Training

    finish = Training.finish

    def spoilt(self):
        finish(self)
        if is_chosen_rank():
            with torch.no_grad():
                next(self.plain_model.parameters()).view(-1)[0] = float("nan")

    Training.finish = spoilt


def in_forward(number: int, act: Callable[[], None]) -> None:
    """`act` at the start of the chosen rank's step `number`; the gate's trainings have fewer."""
    from dpscale.training import Training

    forward = Training.forward

    def changed(self, part, last):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == number and is_chosen_rank():
            act()
        return forward(self, part, last)

    Training.forward = changed


@after("dpscale.training")
def raises() -> None:
    def fail() -> None:
        raise RuntimeError("planted in the third step")

    in_forward(3, fail)


@after("dpscale.plan")
def searches_on_the_cpu() -> None:
    """The plan takes `largest` on a CPU too; what is out of memory there, `little_memory` says."""
    from dpscale import plan

    plan.SEARCHES_ON.add("cpu")


@after("dpscale.training")
def little_memory() -> None:
    """A device of the chosen rank holds DPSCALE_TEST_HOLDS samples."""
    import torch

    from dpscale.training import Training

    forward = Training.forward

    def limited(self, part, last):
        if len(part[1]) > int(os.environ["DPSCALE_TEST_HOLDS"]) and is_chosen_rank():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(self, part, last)

    Training.forward = limited


@after("dpscale.training")
def ends_early() -> None:
    in_forward(3, lambda: os._exit(7))


@after("dpscale.training")
def hangs() -> None:
    in_forward(3, lambda: time.sleep(3600))


@after("dpscale.training")
def hangs_deaf_to_signals() -> None:
    import signal

    def hang() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)

    in_forward(3, hang)


@after("dpscale.world")
def closes_slowly() -> None:
    """A rank that fails holds its report back until the others have noticed that it is gone."""
    import torch.distributed as dist

    destroy = dist.destroy_process_group

    def slow():
        destroy()
        time.sleep(1)

    dist.destroy_process_group = slow


@after("dpscale.workloads.loading")
def slow_loader() -> None:
    """Every batch is 20 ms late."""
    from dpscale.workloads.loading import Loader

    batches = Loader.batches

    def late(self, *arguments):
        for batch in batches(self, *arguments):
            time.sleep(0.02)
            yield batch

    Loader.batches = late


@after("dpscale.workloads.loading")
def slow_epoch_end() -> None:
    """The training's loader takes 100 ms to end."""
    from dpscale.workloads.loading import TrainingStream

    batches = TrainingStream.batches

    def ends_late(self, *arguments):
        yield from batches(self, *arguments)
        time.sleep(0.1)

    TrainingStream.batches = ends_late


@after("dpscale.training")
def slow_rank() -> None:
    """The chosen rank sleeps 20 ms before each backward pass."""
    from dpscale.training import Training

    backward = Training.backward

    def late(self, loss, last):
        if is_chosen_rank():
            time.sleep(0.02)
        backward(self, loss, last)

    Training.backward = late


@after("dpscale.training")
def slow_hook() -> None:
    """DDP's exchange of each bucket sleeps 15 ms first."""
    from dpscale.strategies import ddp, observed

    def slow(state, bucket):
        time.sleep(0.015)
        return observed.averaged(state, bucket)

    ddp.HookedReplica.hook = lambda self: (None, slow)


@after("dpscale.training")
def one_core() -> None:
    """All ranks on the same core of those that they may use."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@after("dpscale.attempt")
def first_port_is_taken() -> None:
    """Somebody listens on the first port that is chosen: DPSCALE_TEST_PORT."""
    from dpscale import attempt

    choose, taken = attempt.free_port, [int(os.environ["DPSCALE_TEST_PORT"])]
    attempt.free_port = lambda: taken.pop() if taken else choose()


@after("snakemake_interface_executor_plugins.executors.remote")
def checks_often() -> None:
    """Snakemake asks SLURM every second for its jobs, however long they take."""
    from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

    RemoteExecutor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)


@after("dpscale.sampling")
def monitor_starts_late() -> None:
    """The monitor of the chosen rank's node takes two seconds to start."""
    from dpscale import sampling

    sample = sampling.sample_until_told

    def late(*arguments):
        if is_chosen_rank():
            time.sleep(2)
        sample(*arguments)

    sampling.sample_until_told = late


@after("dpscale.sampling")
def monitor_breaks() -> None:
    from dpscale import sampling

    def broken(*arguments):
        raise OSError("planted")

    sampling.sample_until_told = broken


@after("dpscale.training")
def starts_late() -> None:
    """The chosen rank is two seconds late for its first step."""
    from dpscale.training import Training

    build = Training.__init__

    def late(self, *arguments):
        build(self, *arguments)
        if is_chosen_rank():
            time.sleep(2)

    Training.__init__ = late


def once(name: str) -> bool:
    """Whether no launch into this folder has come here before."""
    path = Path(os.environ["DPSCALE_TEST_OUT"]) / f"{name}-{this_rank()}.once"
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def in_step_once(act: Callable[[], None]) -> None:
    """`act` in the chosen rank's step DPSCALE_TEST_STEP, in the first launch alone."""
    in_forward(int(os.environ["DPSCALE_TEST_STEP"]), lambda: act() if once("came-here") else None)


def pid_of_launch() -> int:
    import psutil

    return next(
        process.pid for process in psutil.Process().parents() if any("launch.py" in part for part in process.cmdline())
    )


@after("dpscale.training")
def asks_to_stop() -> None:
    import signal

    in_step_once(lambda: os.kill(os.getpid(), signal.SIGUSR1))


@after("dpscale.training")
def launch_is_terminated() -> None:
    import signal

    in_step_once(lambda: os.kill(pid_of_launch(), signal.SIGTERM))


@after("dpscale.training")
def launch_is_killed() -> None:
    import signal

    in_step_once(lambda: os.kill(pid_of_launch(), signal.SIGKILL))


@after("dpscale.training")
def everything_hears_a_signal() -> None:
    """As SLURM does it: DPSCALE_TEST_SIGNAL goes to every process of a job step at once."""
    import signal

    import psutil

    number = signal.Signals[os.environ["DPSCALE_TEST_SIGNAL"]]

    def send() -> None:
        started = psutil.Process(pid_of_launch())
        for process in [started, *started.children(recursive=True)]:
            process.send_signal(number)

    in_step_once(send)


@after("dpscale.training")
def waits_to_be_stopped() -> None:
    """Each rank waits in its step DPSCALE_TEST_STEP, which a resumed one has no more, until it is asked to stop."""
    from dpscale.stopping import StopRequest

    ask, asked = StopRequest._ask, []

    def heard(self, *arguments):
        asked.append(arguments)
        ask(self, *arguments)

    def wait() -> None:
        print("waits to be stopped")
        deadline = time.monotonic() + 200
        while not asked and time.monotonic() < deadline:
            time.sleep(0.05)

    StopRequest._ask = heard
    in_forward(int(os.environ["DPSCALE_TEST_STEP"]), wait)


@after("dpscale.training")
def is_killed() -> None:
    import signal

    in_step_once(lambda: os.kill(os.getpid(), signal.SIGKILL))


# Collectives


@after("dpscale.collectives.exchanges")
def sums_wrongly() -> None:
    """The chosen rank's all-reduce is off by one in one element, from the second call on."""
    import torch.distributed as dist

    all_reduce, calls = dist.all_reduce, []

    def wrong(tensor, *arguments, **keywords):
        work = all_reduce(tensor, *arguments, **keywords)
        calls.append(tensor.numel())
        if tensor.numel() > 100 and calls.count(tensor.numel()) == 2 and is_chosen_rank():
            tensor[17] += 1
        return work

    dist.all_reduce = wrong


@after("dpscale.collectives.exchanges")
def backend_without_scatter() -> None:
    import torch.distributed as dist

    def refused(*arguments):
        raise RuntimeError("ProcessGroupSmall does not support scatter")

    dist.scatter = refused


@after("dpscale.survey")
def slow_to_exchange() -> None:
    """The chosen rank takes 50 ms longer for each exchange of the survey."""
    from dpscale import survey

    exchange = survey.exchange

    def slow(*arguments):
        if is_chosen_rank():
            time.sleep(0.05)
        exchange(*arguments)

    survey.exchange = slow
