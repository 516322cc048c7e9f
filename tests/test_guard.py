"""What a run must not do: run what others have written, write where it should not, tell secrets, listen to strangers."""

from __future__ import annotations

import ast
import os
import pickle
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from factories import a_config, changed
from launching import small_trial
from pipeline import SECRETS, Checkout, whole_run
from timed_runs import a_run

from dpscale.config import load_config
from dpscale.errors import UserError
from dpscale.launching.attempt import free_port
from dpscale.launching.launches import environment_for
from dpscale.strategies.base import Replica
from dpscale.workloads.arrays import open_split, write_prepared
from dpscale.world import meeting_store

SCRIPTS = Path(__file__).parents[1] / "scripts"


def calls() -> Iterator[tuple[str, str, dict[str, str]]]:
    """(file, name of what is called, its keywords) of every call in the project."""
    for path in sorted(SCRIPTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                keywords = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg}
                yield path.relative_to(SCRIPTS).as_posix(), ast.unparse(node.func), keywords


CALLS = list(calls())


def imported() -> Iterator[tuple[str, str]]:
    for path in sorted(SCRIPTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or ""
                file = path.relative_to(SCRIPTS).as_posix()
                yield from ((file, f"{module}.{alias.name}".lstrip(".")) for alias in node.names)


# Pickles, and other code in the clothes of data


def test_nothing_that_runs_what_it_loads_is_imported_or_called():
    packages = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
    assert [(file, name) for file, name in imported() if name.partition(".")[0] in packages] == []
    called = {"eval", "exec", "compile", "pd.read_pickle", "torch.jit.load", "torch.hub.load", "yaml.unsafe_load"}
    assert [(file, name) for file, name, _ in CALLS if name in called] == []


def test_loaders_that_can_run_what_they_load_are_told_not_to():
    safe = {
        "torch.load": ("weights_only", "True"),
        "np.load": ("allow_pickle", "False"),
        "yaml.load": ("Loader", "LOADER"),
    }
    found = [(file, name, keywords) for file, name, keywords in CALLS if name in safe]
    assert {name for _, name, _ in found} == safe.keys()
    for file, name, keywords in found:
        keyword, value = safe[name]
        assert keywords.get(keyword) == value, f"{file}: {name}"


def test_libraries_that_unpickle_their_own_checkpoints_see_those_of_a_run_alone():
    """Two rows leave that to a library: of a checkpoint's folder, whose files are held to the digests that the run put down."""
    of_torch = {file for file, name in imported() if name.startswith("torch.distributed.checkpoint")}
    of_deepspeed = {file for file, name, _ in CALLS if name.endswith(".load_checkpoint")}
    assert (of_torch, of_deepspeed) == ({"dpscale/strategies/fsdp.py"}, {"dpscale/strategies/deepspeed.py"})


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


def test_a_pickle_among_the_arrays_of_a_dataset_is_refused_and_not_run(tmp_path: Path):
    images = np.zeros((4, 1, 8, 8), np.uint8)
    labels = np.arange(4)
    folder, pwned = tmp_path / "prepared", tmp_path / "pwned"
    write_prepared(folder, "mine", 4, {"train": (images, labels), "test": (images, labels)})
    np.save(folder / "train-images.npy", np.array([Evil(pwned)], dtype=object))
    with pytest.raises(UserError, match=r"train-images\.npy.*run snakemake prepare"):
        open_split(folder, "train")
    assert not pwned.exists()


def test_a_pickle_in_a_checkpoint_is_not_run(tmp_path: Path):
    pwned = tmp_path / "pwned"
    (tmp_path / "replica-0.pt").write_bytes(pickle.dumps(Evil(pwned)))
    replica = object.__new__(Replica)
    replica.world = type("World", (), {"rank": 0})()
    with pytest.raises(pickle.UnpicklingError):
        replica.load(tmp_path)
    torch.save(Evil(pwned), tmp_path / "replica-0.pt")
    with pytest.raises(pickle.UnpicklingError):
        replica.load(tmp_path)
    assert not pwned.exists()


# Archives


def test_no_archive_is_unpacked():
    """What is read of one is read where it lies: tests/test_sources.py has archives whose names lead out of theirs."""
    unpack = {"extractall", "extract", "unpack_archive", "Untar", "Unzip", "Decompress"}
    assert not [call for call in CALLS if call[1].rpartition(".")[2] in unpack]


# Shells


def test_no_process_is_started_through_a_shell():
    assert not [call for call in CALLS if "shell" in call[2] or call[1] in ("os.system", "os.popen", "getoutput")]


def test_rules_quote_what_they_put_into_a_shell():
    """All but what is quoted word by word already, and names that no shell could take for anything else."""
    plain = {"params.trial", "params.run", "params.search", "resources.limits", "params.mixed_nodes", "params.partial"}
    plain |= {"params.figure", "params.flops", "wildcards.experiment"}
    rules = "\n".join(path.read_text() for path in sorted((SCRIPTS.parent / "workflow/rules").glob("*.smk")))
    used = [
        name
        for block in re.findall(r"\n    shell:\n((?:        .*\n)+)", rules)
        for name in re.findall(r"(?<!\{)\{([a-z]+\.[a-z_]+(?::q)?|log(?::q)?|output(?::q)?)\}", block)
    ]
    assert len(used) > 20
    assert {name for name in used if not name.endswith(":q")} <= plain


# Secrets


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return whole_run(tmp_path_factory.getbasetemp())[0]


def test_no_secret_of_the_environment_is_in_anything_that_a_run_leaves_or_says(whole: Checkout, tmp_path_factory):
    said = whole_run(tmp_path_factory.getbasetemp())[1].output
    files = [path for path in whole.root.rglob("*") if path.is_file()]
    assert [path for path in files if path.name == "record.json"]
    assert [path for path in files if path.name == "trial.log"]
    for secret in SECRETS.values():
        assert secret not in said
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("path", "value", "remedy"),
    [
        (["datasets", "mnist", "mirrors"], ["https://me:s3cret@host/files"], "~/.netrc"),
        (["datasets", "mnist", "mirrors"], ["https://s3cret@host/files"], "~/.netrc"),
        (["datasets", "mnist", "mirrors"], ["https://host/files?token=s3cret"], "take that out"),
        (["datasets", "mnist", "source"], "https://me:s3cret@host/files", "~/.netrc"),
        (["cluster", "container"], "docker://me:s3cret@registry.org/image", "apptainer registry login"),
    ],
)
def test_a_password_in_a_configuration_is_refused_and_not_repeated(path: list[str], value: object, remedy: str):
    with pytest.raises(UserError) as refused:
        load_config(changed(a_config(), path, value))
    assert ".".join(path) in str(refused.value)
    assert remedy in str(refused.value)
    assert "me:s3cret" not in str(refused.value)
    assert "://s3cret" not in str(refused.value)


# Who can reach a run


def test_ranks_meet_at_the_address_that_is_given_and_at_no_other():
    port = free_port()
    store = meeting_store("127.0.0.2", port, 1, True, timedelta(seconds=10))
    listening = {
        connection.laddr.ip
        for connection in psutil.Process().net_connections()
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert listening == {"127.0.0.2"}


def test_where_the_address_is_none_of_this_machines_ranks_can_still_meet(monkeypatch: pytest.MonkeyPatch):
    port, create = free_port(), socket.create_server

    def refused(address: tuple[str, int], **how: object) -> socket.socket:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refused)
    store = meeting_store("127.0.0.1", port, 1, True, timedelta(seconds=10))
    monkeypatch.setattr(socket, "create_server", create)
    with closing(socket.create_connection(("127.0.0.1", port), timeout=5)):
        assert store.num_keys() >= 0  # it lives until here


@pytest.mark.parametrize("launched", [small_trial(), a_run()], ids=["trial", "collectives"])
def test_on_one_machine_gloo_is_kept_to_loopback(launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert environment_for(launched, tmp_path)["GLOO_SOCKET_IFNAME"] in ("lo", "lo0")


def test_on_one_machine_nccl_is_kept_to_loopback_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    trial = small_trial(device="cuda", backend="nccl")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    assert environment_for(trial, tmp_path)["NCCL_SOCKET_IFNAME"] in ("lo", "lo0")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    assert environment_for(trial, tmp_path)["NCCL_SOCKET_IFNAME"] == "eth7"
