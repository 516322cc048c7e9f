"""A dataset of the user's own: a function () -> {"train": (inputs, labels), "test": (inputs, labels)}."""

from __future__ import annotations

import numpy as np

from dpscale import own
from dpscale.errors import UserError
from dpscale.workloads.arrays import SPLITS
from dpscale.workloads.samples import Split


def read(name: str) -> tuple[int, dict[str, Split]]:
    """(classes, splits). Classes are the factory's attribute `classes`, or as many as its largest label asks for.

    Raises:
        UserError: there is no such factory, or what it returns is not as above.
    """
    made = own.call(name)
    if not isinstance(made, dict) or set(made) != set(SPLITS):
        shown = f"keys {', '.join(map(str, made))}" if isinstance(made, dict) else type(made).__name__
        raise UserError(f'{name}: returned {shown}; return {{"train": (inputs, labels), "test": (inputs, labels)}}')
    splits = {}
    for split in SPLITS:
        try:
            inputs, labels = (np.asarray(part) for part in made[split])
        except (TypeError, ValueError) as error:
            raise UserError(f"{name}: {split} is not a pair of arrays, inputs and labels ({error})") from None
        splits[split] = inputs, labels.astype(np.int64) if labels.ndim == 1 and labels.dtype.kind in "iu" else labels
    classes = getattr(own.load(name), "classes", None)
    if classes is None:
        classes = 1 + max((int(labels.max()) for _, labels in splits.values() if labels.dtype.kind in "iu" and labels.size), default=0)
    if not isinstance(classes, int):
        raise UserError(f"{name}.classes = {classes!r}: give the number of classes")
    return classes, splits
