"""How many floating-point operations a model's training asks for, counted without computing any of them."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from dpscale.own import is_own
from dpscale.typed import validated
from dpscale.workloads.models import MODELS, own
from dpscale.workloads.samples import Samples

COUNTED = 2  # samples: batch norm needs more than one


class NotCounted(Exception):
    """The model's operations can't be counted; says why."""


def flops_per_sample(name: str, options: dict[str, object], samples: Samples) -> float:
    """Of one sample, forward and backward: two for each multiplication that is added, in matrix products, convolutions and
    attention. Tensors are torch's `meta`, which have a shape and no content: nothing is computed, on no device.

    Raises:
        NotCounted: the model does no such operations, or can't be run without content.
    """
    try:
        with torch.device("meta"):
            if is_own(name):
                model = own.build(name, options, samples)
                loss = own.loss_of(model)
            else:
                row = MODELS[name]
                if not row.computes:
                    raise NotCounted("it computes nothing that could be counted")
                model, loss = row.build(validated(row.options, options, name), samples), row.loss
            shape = (COUNTED, *samples.shape)
            if samples.kind == "images":
                inputs, labels = torch.empty(shape), torch.empty(COUNTED, dtype=torch.int64)
            else:
                inputs, labels = torch.empty(shape, dtype=torch.int64), torch.empty(shape, dtype=torch.int64)
            with FlopCounterMode(display=False) as counter:
                loss(model(inputs), labels, reduction="mean").backward()
    except (
        RuntimeError,
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
    ) as error:  # NotImplementedError is the first
        raise NotCounted(f"{name} can't be run on tensors without content ({type(error).__name__}: {error})") from None
    if counter.get_total_flops() == 0:
        raise NotCounted(f"{name} has no matrix product, convolution or attention")
    return counter.get_total_flops() / COUNTED
