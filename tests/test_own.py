"""Models and datasets of the user's own: found without being imported, measured again when they change, and trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from factories import a_config, a_single_trial
from launching import SCRIPTS, launch, measured, small_trial
from pipeline import ROOT, Checkout, small_config, small_experiment
from test_readme import blocks
from torch import nn

from dpscale import code, own
from dpscale.code import own_sources, prepare_code, trial_code
from dpscale.config import load_config
from dpscale.errors import ConfigError, UserError
from dpscale.evaluation import RankEvaluation, evaluate
from dpscale.planning.plan import find_own_code, plan_trials
from dpscale.training import Training, build_model
from dpscale.workloads.arrays import write_prepared
from dpscale.workloads.datasets import own as own_dataset
from dpscale.workloads.loading import Arrays, Loader
from dpscale.workloads.models.own import loss_of
from dpscale.workloads.prepared import read_manifest
from dpscale.workloads.samples import Samples
from dpscale.world import World

PAGE = ROOT / "docs" / "own-workload.md"
ALONE = World(0, 0, node_rank=0, size=1, devices_per_node=1, device=torch.device("cpu"))
IMAGES = Samples("images", (3, 16, 16), 2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, where modules are looked for and nothing of other tests is remembered."""
    monkeypatch.setenv(own.FOLDERS, str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = set(sys.modules)
    forget()
    yield tmp_path
    forget()
    for name in set(sys.modules) - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def forget() -> None:
    for function in vars(code).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    forget()
    return folder


# Names


@pytest.mark.parametrize("name", ["net:make", "my.nets.small:Net", "_a.b2:_c"])
def test_a_factory_is_named_by_its_module_and_function(name):
    assert own.is_own(name)
    assert own.is_well_formed(name)
    assert own.dataset_of(own.folder_name(name)) == name
    assert not set(own.folder_name(name)) & set(":/ ")


@pytest.mark.parametrize(
    "name", ["net:", ":make", "net.py:make:2", "./net:make", "my-net:make", "net:make()", "a..b:c"]
)
def test_what_is_no_name_of_a_factory_is_refused_when_it_is_planned(name):
    for key, table in (("model", "convnet"), ("dataset", "digits")):
        with pytest.raises(ConfigError) as refused:
            plan_trials(load_config(a_config(workload={key: name})))
        text = str(refused.value)
        assert f"experiments.quick.workload.{key}: unknown {key} {name!r}; " in text
        assert table in text
        assert text.endswith("; or package.module:factory of your own")


def test_a_plan_needs_no_package_and_no_data_of_ones_own():
    workload = {"model": "not.here:net", "model_options": {"anything": [1]}, "dataset": "nor.here:data"}
    trials = plan_trials(load_config(a_config(workload=workload | {"train_samples": 10}, batch={"per_device": 5})))
    assert {(trial.model, trial.dataset) for trial in trials["quick"]} == {("not.here:net", "nor.here:data")}


def test_what_the_plan_knows_of_ones_own_workload_is_still_checked():
    def problem(**changes: Any) -> str:
        with pytest.raises(ConfigError) as refused:
            plan_trials(load_config(a_config(**changes)))
        return str(refused.value)

    workload = {"model": "a.b:c", "dataset": "d.e:f"}
    assert "does not divide by the 2 devices" in problem(workload=workload, batch={"global": 65})
    assert "digits has 1498" in problem(workload=workload | {"dataset": "digits"}, batch={"per_device": 800})
    assert "d.e:f has 10 here" in problem(workload=workload | {"train_samples": 10})
    assert "model_options.classes: the dataset gives it to a.b:c; remove this key" in problem(
        workload=workload | {"model_options": {"classes": 3}}
    )
    with pytest.raises(ConfigError, match=r"datasets\.d\.e:f: unknown dataset; .*one of your own takes no settings"):
        plan_trials(load_config({**a_config(), "datasets": {"d.e:f": {}}}))


# Its source


def test_a_module_is_found_in_a_file_or_a_package_and_is_not_imported(folder):
    written(folder, dict.fromkeys(["net.py", "mine/__init__.py", "mine/nets.py"], "raise SystemExit"))
    assert own.source_file("net:make") == folder / "net.py"
    assert own.source_file("mine.nets:make") == folder / "mine" / "nets.py"
    assert own.source_file("mine:make") == folder / "mine" / "__init__.py"


def test_a_module_of_an_installed_package_is_found_too(folder):
    assert own.source_file("torchvision.models.resnet:resnet18").parts[-3:] == ("torchvision", "models", "resnet.py")


@pytest.mark.parametrize("name", ["nothing_of_this_name:make", "nothing_of_this_name.nets:make", "torch.nothing:make"])
def test_a_module_that_is_nowhere_is_refused_by_the_key_that_names_it(folder, name):
    config = load_config(a_config(workload={"model": name}))
    with pytest.raises(ConfigError) as refused:
        find_own_code(config)
    file = name.partition(":")[0].replace(".", "/")
    assert str(refused.value) == (
        f"config.yaml: experiments.quick.workload.model = {name!r}: no {file}.py in {folder}, nor is it installed here; "
        "put it there, beside the configuration"
    )


@pytest.mark.parametrize("module", ["train", "dpscale.own"])
def test_a_name_of_our_own_modules_is_refused_for_ranks_would_import_ours(folder, module):
    written(folder, {"train.py": ""})
    with pytest.raises(UserError, match="is a module of dpscale itself, which would be taken; give yours another name"):
        own.source_file(f"{module}:make")


def test_source_that_is_no_python_is_refused_by_file_and_line(folder):
    written(folder, {"net.py": "x = 1\ndef make(:\n"})
    with pytest.raises(UserError, match=r"net\.py: .*line 2\); mend it"):
        own_sources("net:make")


# Its digest


def digests() -> tuple[str, str]:
    return trial_code("ddp", "mine.nets:make", "spawn"), prepare_code("mine.nets:make")


@pytest.fixture
def package(folder):
    files = {
        "mine/__init__.py": "",
        "mine/nets.py": "from . import layers\nimport beside\nimport torch.nn\n\ndef make(classes, sample_shape):\n    return 1\n",
        "mine/layers.py": "from .deep.down import thing\n",
        "mine/deep/down.py": "thing = 1\n",
        "beside.py": "x = 1\n",
        "elsewhere.py": "x = 1\n",
    }
    return written(folder, files)


def test_a_digest_holds_the_module_and_what_it_imports_from_beside_it(package):
    assert own_sources("mine.nets:make").keys() == {"mine", "mine.nets", "mine.layers", "mine.deep.down", "beside"}


@pytest.mark.parametrize(
    "file", ["mine/nets.py", "mine/__init__.py", "mine/layers.py", "mine/deep/down.py", "beside.py"]
)
def test_a_change_of_ones_own_code_changes_the_digest(package, file):
    before = digests()
    written(package, {file: (package / file).read_text() + "EXTRA = 1\n"})
    assert not set(digests()) & set(before)


def test_comments_and_other_modules_change_no_digest(package):
    before = digests()
    written(package, {"elsewhere.py": "x = 2\n", "beside.py": '"""What it is."""\nx = 1  # why\n'})
    assert digests() == before


def test_a_digest_says_nothing_of_where_the_folder_lies(package, tmp_path, monkeypatch):
    before = digests()
    package.rename(tmp_path.with_name("moved"))
    monkeypatch.setenv(own.FOLDERS, str(tmp_path.with_name("moved")))
    forget()
    assert digests() == before


# The model


NETS = """
from torch import nn

def make(classes, sample_shape, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(sample_shape[0] * 256, width), nn.Linear(width, classes))

class WithLoss(nn.Linear):
    def __init__(self, classes, sample_shape):
        super().__init__(1, classes)

    def loss(self, output, labels, reduction):
        return 0

def nothing(classes, sample_shape):
    return None

def fails(classes, sample_shape):
    raise TypeError("inside")

number = 3
"""


def build(name: str, **options: Any) -> nn.Module:
    return build_model(a_single_trial(model=name, model_options=options), IMAGES, ALONE)


def test_a_model_is_made_for_the_samples_with_its_options(folder):
    written(folder, {"nets.py": NETS})
    model = build("nets:make", width=5)
    assert [tuple(weight.shape) for weight in model.parameters() if weight.ndim == 2] == [(5, 768), (2, 5)]


def test_a_module_may_bring_its_loss(folder):
    written(folder, {"nets.py": NETS})
    with_loss, without = build("nets:WithLoss"), build("nets:make")
    assert loss_of(with_loss) == with_loss.loss
    assert loss_of(without).__name__ == "cross_entropy"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("nets:missing", {}, r"nets\.py has no function 'missing'; define it"),
        ("nets:number", {}, r"nets\.py has no function 'number'"),
        ("nets:nothing", {}, "returned NoneType; return a torch.nn.Module"),
        (
            "nets:make",
            {"depth": 3},
            r"unexpected keyword argument 'depth'; it is called with \(classes=2, sample_shape",
        ),
        ("no_nets:make", {}, "no module 'no_nets' in /.* and none installed"),
    ],
)
def test_what_is_no_factory_of_a_model_is_refused_with_the_remedy(folder, name, options, said):
    written(folder, {"nets.py": NETS})
    with pytest.raises(UserError, match=f"^{name}: .*{said}"):
        build(name, **options)


SHAPES = """
from torch import nn

class PerImage(nn.Sequential):
    def __init__(self, classes, sample_shape):
        super().__init__(nn.Flatten(), nn.Linear(sample_shape[0] * 256, classes))

class OwnLoss(PerImage):
    def loss(self, output, labels, reduction):
        squares = (output.gather(1, labels[:, None])[:, 0] - 1) ** 2
        return squares.mean() if reduction == "mean" else squares

class AlwaysMean(PerImage):
    def loss(self, output, labels, reduction):
        return output.mean()

class Unflattened(nn.Linear):
    def __init__(self, classes, sample_shape):
        super().__init__(sample_shape[-1], classes)

    def loss(self, output, labels, reduction):
        return output.mean(dim=(1, 2, 3)) if reduction == "none" else output.mean()
"""


def evaluated(folder: Path, name: str) -> RankEvaluation:
    """One step of training, then 5 test images of one rank."""
    written(folder, {"shapes.py": SHAPES})
    training = Training(a_single_trial(model=f"shapes:{name}", model_options={}), IMAGES, ALONE, steps_per_epoch=1)
    images = np.random.default_rng(0).integers(0, 256, (5, *IMAGES.shape), np.uint8)
    labels = np.array([0, 1, 1, 0, 1])
    test = Loader(Arrays(images, labels), mean=[0.5] * 3, std=[0.3] * 3, device=ALONE.device, workers=0)
    (batch,) = test.batches([np.arange(5)])
    training.backward(training.forward(batch, last=True), last=True)
    training.update()
    return evaluate(test, training, 3, ALONE)


def test_a_loss_of_ones_own_is_what_is_trained_and_evaluated_with(folder):
    done = evaluated(folder, "OwnLoss")
    assert (done.samples, done.predictions) == (5, 5)
    assert 0 <= done.correct <= 5
    assert done.loss_sum >= 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AlwaysMean", r'for labels \(3,\) it predicts \(3,\) and its loss with reduction="none" is \(\)'),
        ("Unflattened", r"for labels \(3,\) it predicts \(3, 3, 16\)"),
    ],
)
def test_an_output_or_a_loss_of_another_shape_than_the_labels_is_refused(folder, name, said):
    with pytest.raises(UserError, match=f"shapes:{name}: {said}.*give logits of each label in the last dimension"):
        evaluated(folder, name)


def test_an_error_of_ones_own_code_is_not_hidden(folder):
    written(folder, {"nets.py": NETS, "imports.py": "import no_such_library\n"})
    with pytest.raises(TypeError, match=r"^inside$"):
        build("nets:fails")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        build("imports:make")


# The dataset


def dataset(folder: Path, returned: str, classes: str = "") -> Samples:
    written(folder, {"sets.py": f"import numpy as np\n\ndef make():\n    return {returned}\n\n{classes}\n"})
    made, splits = own_dataset.read("sets:make")
    return write_prepared(folder / "made", "sets:make", made, splits).samples


def test_images_have_as_many_classes_as_their_largest_label_asks_for(folder):
    split = "(np.zeros((4, 3, 2, 2), np.uint8), np.array([0, 6, 1, 0], np.uint8))"
    assert dataset(folder, f'{{"train": {split}, "test": {split}}}') == Samples("images", (3, 2, 2), 7)


def test_a_factory_may_say_how_many_classes_there_are(folder):
    split = "(np.zeros((4, 3, 2, 2), np.uint8), np.zeros(4, int))"
    assert dataset(folder, f'{{"train": {split}, "test": {split}}}', "make.classes = 10").classes == 10


def test_tokens_have_a_vocabulary_of_inputs_and_labels(folder):
    split = "(np.array([[0, 9]]), np.array([[9, 3]]))"
    assert dataset(folder, f'{{"train": {split}, "test": {split}}}') == Samples("tokens", (2,), 10)


GOOD = "(np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4, int))"


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("None", r'returned NoneType; return \{"train": \(inputs, labels\), "test": \(inputs, labels\)\}'),
        (f'{{"train": {GOOD}}}', "returned keys train; return "),
        (f'{{"train": {GOOD}, "test": 3}}', "test is not a pair of arrays, inputs and labels"),
        (
            f'{{"train": {GOOD}, "test": (np.zeros((4, 1, 2, 2)), np.zeros(4, int))}}',
            r"test has float64 inputs \(4, 1, 2, 2\) and int64 labels \(4,\); give images \(n, channels, height, width\) uint8",
        ),
        (f'{{"train": {GOOD}, "test": (np.zeros((4, 2, 2), np.uint8), np.zeros(4, int))}}', r"inputs \(4, 2, 2\)"),
        (f'{{"train": {GOOD}, "test": (np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4))}}', "float64 labels"),
        (f'{{"train": {GOOD}, "test": (np.zeros((4, 1, 2, 2), np.uint8), np.zeros(3, int))}}', "4 inputs but 3 labels"),
        (f'{{"train": {GOOD}, "test": (np.zeros((0, 1, 2, 2), np.uint8), np.zeros(0, int))}}', "test is empty"),
        (
            f'{{"train": {GOOD}, "test": (np.zeros((4, 1, 3, 3), np.uint8), np.zeros(4, int))}}',
            r"one split has images of \(1, 2, 2\), another images of \(1, 3, 3\); make their samples alike",
        ),
        (f'{{"train": {GOOD}, "test": (np.zeros((1, 1, 2, 2), np.uint8), np.array([-1]))}}', "labels reach from -1"),
    ],
)
def test_arrays_that_are_no_dataset_are_refused_and_nothing_is_made(folder, returned, said):
    with pytest.raises(UserError, match=f"^sets:make: .*{said}"):
        dataset(folder, returned)
    assert not (folder / "made").exists()


def test_more_samples_than_a_dataset_of_ones_own_has_are_refused_where_they_are_read(folder):
    from dpscale.workloads.loading import open_loader

    dataset(folder, f'{{"train": {GOOD}, "test": {GOOD}}}')
    with pytest.raises(UserError, match="train_samples = 5: sets:make has 4; use at most that"):
        open_loader(a_single_trial(train_samples=5), folder / "made", "train", torch.device("cpu"))


# The page's example


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's module, and its dataset prepared as the rule does."""
    folder = tmp_path_factory.mktemp("example")
    (module,) = blocks(PAGE, "python")
    (folder / "my_study.py").write_text(module)
    command = [sys.executable, SCRIPTS / "prepare.py", "my_study:bars", "--out", folder / "data"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder / 'data'}: 2000 train, 401 test images of (3, 16, 16)\n"
    return folder


WORKLOAD = {"model": "my_study:small_net", "model_options": {"width": 16}, "dataset": "my_study:bars"}


def test_the_example_is_short():
    (module,) = blocks(PAGE, "python")
    assert len([line for line in module.splitlines() if line.strip()]) <= 20


def test_its_dataset_is_what_the_page_says(example):
    manifest = read_manifest(example / "data")
    assert (manifest.samples, manifest.counts) == (IMAGES, {"train": 2000, "test": 401})


def test_the_example_is_trained_on_two_ranks_and_learns(example, tmp_path):
    sgd = {"name": "sgd", "lr": 0.05, "momentum": None, "weight_decay": 0.0}
    trial = small_trial(
        batch_size_per_device=32, optimizer=sgd, epochs=3, warmup_epochs=1, steps=None, warmup_steps=None, **WORKLOAD
    )
    record = measured(trial, example / "data", tmp_path, **{own.FOLDERS: str(example)}).record
    evaluation = record.timed_segments[-1].evaluation
    assert (evaluation.samples, evaluation.predictions) == (401, 401)
    assert evaluation.correct > 0.9 * 401
    assert record.weights_max_difference == 0


def test_a_model_that_a_rank_can_not_make_fails_the_trial_with_its_reason(example, tmp_path):
    trial = small_trial("single", 1, **{**WORKLOAD, "model_options": {"widht": 16}})
    done = launch(trial, example / "data", tmp_path, **{own.FOLDERS: str(example)})
    assert done.returncode == 1
    assert "my_study:small_net: got an unexpected keyword argument 'widht'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.leaves_nothing_behind()


# In the workflow


@pytest.fixture(scope="module")
def checkout(example, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    experiment = small_experiment(workload=WORKLOAD, topologies=["1x1"], batch={"per_device": 64})
    copy = Checkout.fresh(tmp_path_factory.mktemp("own") / "dpscale", small_config(experiment))
    (copy.root / "my_study.py").write_text((example / "my_study.py").read_text())
    return copy


RECORD = "results/small/trials/single/spawn/1x1/r0/record.json"


def test_the_workflow_prepares_trains_and_runs_again_what_changed(checkout):
    checkout.run(RECORD)
    assert (checkout.root / "data" / "my_study-bars" / "manifest.json").is_file()
    assert checkout.dry_run(RECORD).jobs == {}
    checkout.edit("my_study.py", "2,000 + 401", "two thousand")  # a docstring
    assert checkout.dry_run(RECORD).jobs == {}
    checkout.edit("my_study.py", "stride=2", "stride=1")
    assert checkout.dry_run(RECORD).jobs.keys() >= {"trial", "prepare_dataset"}


def test_a_config_file_elsewhere_has_its_modules_beside_it(checkout, tmp_path):
    (tmp_path / "elsewhere.py").write_text((checkout.root / "my_study.py").read_text())
    experiment = small_experiment(workload={"model": "elsewhere:small_net", "dataset": "elsewhere:bars"})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"experiments": {"other": experiment}}))
    record = RECORD.replace("small/", "other/")
    done = checkout.dry_run("--configfile", str(tmp_path / "config.yaml"), "--", record)
    assert done.jobs["trial"] == 1
    text = checkout.refused("-n", "--config", "experiments={small: {workload: {model: 'not_here:net'}}}")
    assert "experiments.small.workload.model = 'not_here:net': no not_here.py in " in text
    assert str(checkout.root) in text
