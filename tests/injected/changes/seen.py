"""What a test wants to see of a training."""

import os
from dataclasses import replace

from changes.registering import after, leave


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
