"""Checkpoints of a training: whole or not there, of this trial and code or not taken, each the work of all ranks.

A checkpoint is a folder, named by how far the training had come. Ranks write their files into it under a temporary name;
rank 0 writes the manifest with every file's digest, syncs, and renames: one writer puts it there. The newest two are kept.
They are no output of a rule, since Snakemake deletes those before it tries again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpscale.errors import UserError
from dpscale.files import sha256_of
from dpscale.world import World

FORMAT_VERSION = 1
KEPT = 2
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Progress:
    """How far a training has come: whole segments (epochs), and optimiser steps of the one after them."""

    segment: int
    step: int
    timed: int  # of the segments, how many are timed, and untouched by an interruption

    @property
    def folder_name(self) -> str:
        return f"epoch-{self.segment:05d}-step-{self.step:07d}"


class Checkpoints:
    """The checkpoints of one trial, in one folder that all its nodes see."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self.identity = folder, identity

    def save(self, progress: Progress, write: Callable[[Path], None], world: World) -> None:
        """All ranks call it together, and `write` puts each rank's files into the folder that it is given.

        Raises:
            OSError: there is no room, for example. What was there before stays.
        """
        temporary = self.folder / f".partial-{progress.folder_name}"
        final = self.folder / progress.folder_name
        if world.rank == 0:
            for unfinished in self.folder.glob(".partial-*"):  # of an attempt that was killed, or found no room
                shutil.rmtree(unfinished, ignore_errors=True)
            temporary.mkdir(parents=True)
        world.barrier()
        write(temporary)
        world.barrier()
        if world.rank == 0:
            self._commit(progress, temporary, final)

    def _commit(self, progress: Progress, temporary: Path, final: Path) -> None:
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        for path in files:
            _sync(path)
        manifest = {
            "format_version": FORMAT_VERSION,
            "identity": self.identity,
            "segment": progress.segment,
            "step": progress.step,
            "timed": progress.timed,
            "sha256": {path.relative_to(temporary).as_posix(): sha256_of(path) for path in files},
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest))
        _sync(temporary / MANIFEST)
        _remove(final)  # of an attempt that came as far, and was not taken up
        temporary.rename(final)
        _sync(self.folder)
        for old in self._folders()[KEPT:]:
            _remove(old)

    def _folders(self) -> list[Path]:
        """Those under a final name, the one that came farthest first."""
        return sorted(self.folder.glob("epoch-*-step-*"), reverse=True)

    def found(self, say: Callable[[str], None]) -> Iterator[tuple[Progress, Path]]:
        """Checkpoints that can be taken up, the one that came farthest first; why another can't goes to `say`."""
        for folder in self._folders():
            try:
                yield self.check(folder), folder
            except UserError as error:
                say(f"{error}: left out")

    def check(self, folder: Path) -> Progress:
        """How far the training had come.

        Raises:
            UserError: it is cut, changed, or of another configuration or code.
        """
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            version, identity = manifest["format_version"], manifest["identity"]
            progress, digests = (
                Progress(manifest["segment"], manifest["step"], manifest["timed"]),
                dict(manifest["sha256"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder}: no whole checkpoint ({type(error).__name__}: {error})") from None
        if (version, identity) != (FORMAT_VERSION, self.identity):
            raise UserError(f"{folder}: of another configuration or code")
        for name, digest in digests.items():
            path = folder / name
            if not path.is_file() or sha256_of(path) != digest:
                raise UserError(f"{path}: missing, cut or changed")
        return progress


def _remove(folder: Path) -> None:
    """Under another name first: what is under a final name is whole."""
    if folder.exists():
        gone = folder.with_name(f".partial-{folder.name}-old")
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _sync(path: Path) -> None:
    """Onto the disk, whoever wrote it."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def random_state() -> dict[str, Any]:
    """Of every generator that a model or a dataset of this process may draw from."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """The inverse of `random_state`."""
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    random.setstate(state["python"])
