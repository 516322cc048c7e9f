"""A bundle is whole, checked, the same for the same results, and rebuilds itself elsewhere from its records alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pandas as pd
import pytest
import yaml
from factories import a_config, an_entry
from pipeline import Checkout, Done, whole_run

from dpscale.bundles.archive import CHECKSUMS, checksums, write_archive
from dpscale.bundles.contents import Made, config_text, read_summary, refuse_damaged, refuse_unfinished, results_of
from dpscale.bundles.readme import REBUILD, readme
from dpscale.config import load_config
from dpscale.errors import ConfigError, UserError
from dpscale.forecasting.ledger import LEDGER, append_predictions

MEASURING = {
    "trial",
    "asked_of_trial",
    "time_collectives",
    "largest_batch",
    "predict",
    "prepare_dataset",
    "fetch_dataset",
}
SUMMARY = (
    "Building DAG of jobs...\n"
    "output_file\tdate\trule\tlog-file(s)\tstatus\tplan\n"
    "results/small/tables/summary.csv\tMon\tcollect\tresults/small/logs/collect.log\tok\tupdate pending\n"
    "results/small/trials/ddp/r0/record.json\tMon\ttrial\tresults/small/trials/ddp/r0/trial.log\tparams changed\tupdate pending\n"
    "results/small/figures/speedup.svg\t-\tplot_speedup\t-\tmissing\tno update\n"
    "data/digits/manifest.json\tMon\tprepare_dataset\t-\tok\tno update\n"
    "data/digits/other\tMon\tprepare_dataset\t-\tok\tno update\n"
)


# --- what is in it -------------------------------------------------------------------------------------------------


def test_what_snakemake_lists_is_read_with_its_logs() -> None:
    made = read_summary(SUMMARY)
    assert [file.path.name for file in made] == ["summary.csv", "record.json", "speedup.svg", "manifest.json", "other"]
    assert made[1].logs == (Path("results/small/trials/ddp/r0/trial.log"),)
    assert [file.is_up_to_date for file in made] == [False, False, False, True, True]


def test_all_that_is_missing_or_out_of_date_is_named_with_the_reason() -> None:
    with pytest.raises(UserError) as caught:
        refuse_unfinished(read_summary(SUMMARY))
    text = str(caught.value)
    assert "trials/ddp/r0/record.json (params changed)" in text
    assert "figures/speedup.svg (missing)" in text
    assert "tables/summary.csv (made from such)" in text
    assert "manifest.json" not in text
    assert text.index("(missing)") < text.index("(params changed)") < text.index("(made from such)")


def test_of_very_many_files_the_first_are_named() -> None:
    late = [Made(Path(f"results/{number}"), (), "missing", False) for number in range(25)]
    with pytest.raises(UserError, match="and 15 more"):
        refuse_unfinished(late)
    refuse_unfinished([])


def test_logs_come_along_where_they_lie_beside_a_result_and_data_stay_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("results/small/trials/ddp/r0/trial.log", "results/small/logs/collect.log"):
        Path(name).parent.mkdir(parents=True)
        Path(name).touch()
    names = [name for name, _ in results_of(read_summary(SUMMARY), load_config(a_config()))]
    assert names == [
        "results/small/tables/summary.csv",
        "results/small/trials/ddp/r0/record.json",
        "results/small/trials/ddp/r0/trial.log",
        "results/small/figures/speedup.svg",
        "data/digits/manifest.json",
    ]


def test_results_that_lie_elsewhere_get_the_same_place(tmp_path: Path) -> None:
    config = load_config({**a_config(), "results_dir": str(tmp_path)})
    made = [Made(tmp_path / "small/methods.html", (), "ok", True)]
    assert [name for name, _ in results_of(made, config)] == ["results/small/methods.html"]


def test_the_configuration_is_the_merged_one_which_measures_nothing() -> None:
    strategies = {"ddp": {"bucket_cap_MiB": 1}, "single": None}
    asked = load_config({**a_config(strategies=strategies), "results_dir": "/elsewhere", "data_dir": "/data"})
    text = config_text(asked, ["quick"], "config.yaml, more.yaml", "snakemake -- /elsewhere/")
    kept = load_config(yaml.safe_load(text))
    moved = {"results_dir": "results", "data_dir": "data"}
    of_a_bundle = {"from_records": True, "measured_by": "snakemake -- /elsewhere/"}
    assert kept == asked.model_copy(update={**moved, **of_a_bundle})
    assert "config.yaml, more.yaml" in text
    assert "/elsewhere" in text


def test_experiments_that_are_not_in_the_bundle_are_not_in_its_configuration() -> None:
    experiment = a_config()["experiments"]["quick"]
    asked = load_config({"experiments": {"quick": experiment, "other": experiment}})
    assert list(
        yaml.safe_load(config_text(asked, ["other"], "config.yaml", "snakemake -- results/"))["experiments"]
    ) == ["other"]


def test_whole_and_partial_results_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="partial: true takes what is there, from_records: true asks for all"):
        load_config({**a_config(), "partial": True, "from_records": True})


def test_the_readme_says_what_each_file_is_and_knows_new_ones_by_their_place() -> None:
    records = pd.DataFrame(
        [["ok", "2026-11-30T10:00:00", "abc", "def-dirty"]], columns=["status", "started_at", "code_digest", "commit"]
    )
    timings = pd.DataFrame(
        [["ok", "2026-11-30T10:00:30"], ["unavailable", "2026-11-30T11:00:00"]], columns=["status", "ended_at"]
    )
    files = [
        f"results/small/{name}"
        for name in ("tables/advice.csv", "advice.html", "tomorrow.html", "figures/print/speedup.one_column.pdf")
    ]
    text = " ".join(readme("demo", ["small"], files, {"small": records}, {"small": timings}, "config.yaml").split())
    assert "| `results/small/tables/advice.csv` | table advice: dpscale/docs/reference.md#advice" in text
    assert "| `results/small/advice.html` | what to do: a verdict, why, and what next |" in text
    assert "| `results/small/tomorrow.html` | a page for a browser" in text
    assert "How much faster do N devices train than one? (for print)" in text
    assert "| small | 1 | 2026-11-30T10:00:00 | 2026-11-30T10:00:30 | abc | def-dirty |" in text
    assert f"{REBUILD} small" in text


def test_a_ledger_that_was_changed_is_refused_for_nothing_makes_it_again(tmp_path: Path) -> None:
    ledger = tmp_path / "small/predictions" / LEDGER
    append_predictions(ledger, [an_entry()])
    refuse_damaged([ledger], tmp_path)
    ledger.write_text(ledger.read_text().replace('"steps": 2.0', '"steps": 3.0'))
    with pytest.raises(UserError, match="cut or changed since it was made; put the file back"):
        refuse_damaged([ledger], tmp_path)


# --- the archive ---------------------------------------------------------------------------------------------------


def test_an_archive_depends_on_names_and_contents_alone(tmp_path: Path) -> None:
    def archive(name: str, time_s: int, order: int) -> bytes:
        folder = tmp_path / name
        folder.mkdir()
        for file in ("a", "b"):
            (folder / file).write_text(f"content of {file}")
            os.utime(folder / file, (time_s, time_s))
            (folder / file).chmod(0o600 if order > 0 else 0o666)
        files = {"a": folder / "a", "deep/b": folder / "b", "c": b"text"}
        write_archive(folder / "x.tar.gz", "x", dict(list(files.items())[::order]))
        return (folder / "x.tar.gz").read_bytes()

    assert archive("one", 1_000_000_000, 1) == archive("two", 1_700_000_000, -1)


def test_its_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.tar.gz", "x", {"deep/a": b"1", "b": b"2"})
    folder = unpacked(tmp_path / "x.tar.gz", tmp_path / "there")
    subprocess.run(["sha256sum", "--check", "--quiet", CHECKSUMS], cwd=folder, check=True)
    assert (folder / CHECKSUMS).read_bytes() == checksums({"deep/a": b"1", "b": b"2"})
    (folder / "b").write_text("3")
    assert (
        subprocess.run(["sha256sum", "--check", CHECKSUMS], cwd=folder, capture_output=True, check=False).returncode
        == 1
    )


def test_an_archive_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_archive(tmp_path / "x.tar.gz", "x", {"a": b"1", "b": tmp_path / "not there"})
    assert list(tmp_path.iterdir()) == []


def unpacked(archive: Path, to: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(to, filter="data")
    (folder,) = to.iterdir()
    return folder


# --- of a real run -------------------------------------------------------------------------------------------------


PRESET = "my preset.yaml"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """As measured by a preset, which the explorer's commands name."""
    whole, _ = whole_run(tmp_path_factory.getbasetemp())
    copy = whole.copy(tmp_path_factory.mktemp("bundle") / "dpscale")
    (copy.root / PRESET).write_text("partial: false\n")
    copy.run("results/small/explore.html", "--configfile", PRESET)
    assert f"--configfile '{PRESET}' -- results/small/" in copy.results("small/explore.html").read_text()
    return copy


def bundle(copy: Checkout, name: str = "small", *targets: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/bundle.py", name, "--config", "config.yaml", PRESET, "--targets", *targets],
        cwd=copy.root,
        env=copy.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def made(checkout: Checkout) -> Path:
    done = bundle(checkout)
    assert done.returncode == 0, done.stderr
    return checkout.root / "bundles/small.tar.gz"


@pytest.fixture(scope="module")
def rebuilt(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done, dict[str, bytes]]:
    """The bundle elsewhere, the command of its README, and what lay there before."""
    folder = unpacked(made, tmp_path_factory.mktemp("elsewhere") / "of somebody else")
    before = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert f"```bash\n{REBUILD}\n" in before["README.md"].decode()
    done = Checkout(folder).snakemake(*REBUILD.split()[1:], timeout_s=600)
    return folder, done, before


def test_a_bundle_holds_what_the_rules_declare(
    rebuilt: tuple[Path, Done, dict[str, bytes]], checkout: Checkout
) -> None:
    _, _, before = rebuilt
    results = checkout.results()
    declared = {
        f"results/{path.relative_to(results)}"
        for path in results.rglob("*")
        if path.is_file() and "logs" not in path.parts and path.name != "README.md" and path.name[0] != "."
    }
    assert declared <= before.keys()
    assert {"README.md", "config.yaml", "installed.txt", CHECKSUMS, "data/synthetic/manifest.json"} <= before.keys()
    assert {"dpscale/Snakefile", "dpscale/envs/requirements.txt", "dpscale/docs/reference.md"} <= before.keys()
    assert not any(name.endswith(".npy") or "__pycache__" in name for name in before)


def test_everything_is_rebuilt_byte_for_byte_and_nothing_is_measured(
    rebuilt: tuple[Path, Done, dict[str, bytes]],
) -> None:
    folder, done, before = rebuilt
    assert done.returncode == 0, done.output
    assert not MEASURING & done.jobs.keys()
    assert {"collect", "methods", "plot_speedup", "plot_comparison"} <= done.jobs.keys()
    tables = [name for name in before if name.startswith("results/small/tables/")]
    figures = [name for name in before if name.startswith("results/small/figures/")]
    assert len(tables) > 10
    assert len(figures) > 30
    for name in [*tables, *figures, "results/small/methods.html", "results/small/explore.html"]:
        path = folder / name
        assert path.stat().st_mtime > 1_000_000_000, f"{name} was not made again"
        assert path.read_bytes() == before[name], name
    subprocess.run(["sha256sum", "--check", "--quiet", CHECKSUMS], cwd=folder, check=True)


def test_a_record_that_is_missing_is_an_error_and_not_measured(rebuilt: tuple[Path, Done, dict[str, bytes]]) -> None:
    folder, _, _ = rebuilt
    lost = folder / "results/small/trials/ddp/spawn/1x2/r0/record.json"
    lost.rename(lost.with_name("kept"))
    try:
        output = Checkout(folder).refused("-n", "-s", "dpscale/Snakefile", "--forceall")
    finally:
        lost.with_name("kept").rename(lost)
    assert "from_records = True: missing: results/small/trials/ddp/spawn/1x2/r0/record.json" in output


@pytest.mark.parametrize(
    ("name", "said"), [("record.json", "not a whole record"), ("steps.parquet", "missing, cut or not of this record")]
)
def test_a_record_that_is_cut_is_an_error_whose_remedy_is_the_bundle_and_no_measurement(
    name: str, said: str, rebuilt: tuple[Path, Done, dict[str, bytes]]
) -> None:
    folder, _, before = rebuilt
    cut = f"results/small/trials/ddp/spawn/1x2/r0/{name}"
    (folder / cut).write_bytes(before[cut][:-100])
    try:
        output = Checkout(folder).refused("-n", "-s", "dpscale/Snakefile", "--forceall")
    finally:
        (folder / cut).write_bytes(before[cut])
    assert f"from_records = True: {cut}: {said}" in output
    assert "; unpack the bundle anew" in output
    assert "run the same command again" not in output


def test_the_same_results_give_the_same_bundle(checkout: Checkout, made: Path) -> None:
    before = made.read_bytes()
    assert bundle(checkout).returncode == 0
    assert made.read_bytes() == before


def test_results_that_are_missing_or_out_of_date_are_refused_by_name(checkout: Checkout, made: Path) -> None:
    figure = checkout.results("small/figures/speedup.pdf")
    content, config = figure.read_bytes(), checkout.config
    figure.unlink()
    config["experiments"]["small"]["strategies"]["independent"] = {"topologies": ["1x3"]}
    (checkout.root / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    try:
        done = bundle(checkout, "other")
    finally:
        figure.write_bytes(content)
        config["experiments"]["small"]["strategies"]["independent"] = None
        checkout.configure(config)
    assert done.returncode == 1
    assert "results/small/trials/independent/spawn/1x3/r0/record.json (missing)" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (checkout.root / "bundles/other.tar.gz").exists()


def test_results_that_were_damaged_since_are_refused_by_name_whatever_their_times_say(
    checkout: Checkout, made: Path
) -> None:
    trial = "results/small/trials/ddp/spawn/1x2/r0"
    sealed = ["results/small/tables/summary.csv", "results/small/figures/speedup.svg", "results/small/explore.html"]
    names = [*sealed, f"{trial}/steps.parquet", "results/small/trials/ddp/spawn/1x2/r1/monitor.parquet"]
    paths = [checkout.root / name for name in names]
    kept = [(path.read_bytes(), path.stat()) for path in paths]
    try:
        for path, (content, times) in zip(paths, kept, strict=True):
            path.write_bytes(with_one_byte_flipped(content))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        done = bundle(checkout, "other")
    finally:
        for path, (content, times) in zip(paths, kept, strict=True):
            path.write_bytes(content)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert done.returncode == 1
    assert "damaged; `make run`, " in done.stderr
    for name in sealed:
        assert f"\n{name}: cut or changed since it was made\n" in done.stderr
    for name in names[3:]:
        assert f"\n{name}: missing, cut or not of this record\n" in done.stderr
    assert len(done.stderr.splitlines()) == 1 + len(names)
    assert not (checkout.root / "bundles/other.tar.gz").exists()


def with_one_byte_flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_a_target_that_no_rule_makes_is_refused_with_those_there_are_and_how_to_name_a_preset(
    checkout: Checkout,
) -> None:
    done = bundle(checkout, "other", "second")
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"'second': no experiment, named target or file that config.yaml, {PRESET} gives; experiments: small; "
    )
    assert "PRESET=" in done.stderr
    assert "MissingRuleException" not in done.stderr


@pytest.mark.parametrize("name", ["../x", ".hidden", "a b"])
def test_a_name_that_is_none_is_refused(checkout: Checkout, name: str) -> None:
    done = bundle(checkout, name)
    assert done.returncode == 1
    assert f"{name!r} is no name of a bundle" in done.stderr
