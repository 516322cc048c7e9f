"""A dataset of the user's own: a function () -> {"train": (inputs, labels), "test": (inputs, labels)}."""

from __future__ import annotations

import numpy as np

from dpscale import own
from dpscale.errors import UserError
from dpscale.workloads.prepared import SPLITS
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
        classes = 1 + max(_largest_label(*arrays) for arrays in splits.values())
    if not isinstance(classes, int):
        raise UserError(f"{name}.classes = {classes!r}: give the number of classes")
    return classes, splits


def _largest_label(inputs: np.ndarray, labels: np.ndarray) -> int:
    """Of tokens, the largest of all; -1 where there is none, which write_prepared refuses with its reason."""
    arrays = [labels] if labels.ndim == 1 else [inputs, labels]
    return max((int(array.max()) for array in arrays if array.dtype.kind in "iu" and array.size), default=-1)
