"""calibration.json: what a prediction was calibrated from, to be calibrated again from by whoever asks what if."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpscale.errors import UserError
from dpscale.files import refuse_changed, write_sealed
from dpscale.scaling_model.measurements import Measurements
from dpscale.scaling_model.prediction import Setting

FORMAT_VERSION = 1
FILE = "calibration.json"


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """One strategy under one launcher."""

    strategy: str
    launcher: str
    seed: int  # of the draws
    setting: Setting  # as it is trained
    measurements: Measurements
    estimates: dict[str, Any]  # what they come to, for readers: nothing is computed from these


def write_calibrations(path: Path, calibrated: Sequence[Calibrated], facts: Mapping[str, Any]) -> None:
    """
    Args:
        facts: where it comes from: the experiment, the inputs with their digests, the code, the ledger's last line.
    """
    data = {"format_version": FORMAT_VERSION, **facts, "calibrated": [asdict(one) for one in calibrated]}
    write_sealed(path, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())


def last_line_of(path: Path) -> str | None:
    """The digest of the ledger's last line when a calibration was written; None in one of before lines had digests.

    Raises:
        UserError: unreadable, or changed since it was written.
    """
    remedy = "delete it and run snakemake again"
    refuse_changed(path, remedy)
    try:
        last: str | None = json.loads(path.read_text()).get("ledger")
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path}: no calibration ({type(error).__name__}: {error}); {remedy}") from None
    return last


def read_calibrations(path: Path) -> list[Calibrated]:
    """Raises UserError: unreadable, changed since it was written, or of another format."""
    remedy = "give the calibration.json that the rule predict writes, or run it again"
    refuse_changed(path, remedy)
    try:
        data = json.loads(path.read_text())
        if (found := data["format_version"]) != FORMAT_VERSION:
            raise UserError(f"{path}: format {found}, this code reads {FORMAT_VERSION}; {remedy}")
        return [
            Calibrated(
                **{
                    **one,
                    "setting": Setting(**one["setting"]),
                    "measurements": Measurements.from_dict(one["measurements"]),
                }
            )
            for one in data["calibrated"]
        ]
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: no calibration ({type(error).__name__}: {error}); {remedy}") from None
