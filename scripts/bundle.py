"""One archive of records, tables, figures, configuration, lock files, code and checksums, for a repository of research data.

It is made of what the rules declare, refuses what is missing, out of date or damaged by name, and is the same for the same results.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from dpscale.bundles import contents
from dpscale.bundles.archive import write_archive
from dpscale.bundles.readme import readme
from dpscale.config import Config, load_config
from dpscale.errors import UserError, entry_point
from dpscale.reading import merged_configs
from dpscale.rerun import rerun_command
from dpscale.snapshots import NAME
from dpscale.tables import read_table


def merged(paths: list[Path]) -> Config:
    """Raises UserError: a file is no configuration, or one that has no bundle."""
    config = load_config(merged_configs(paths), ", ".join(map(str, paths)))
    if config.partial or config.from_records:
        key = "partial" if config.partial else "from_records"
        raise UserError(f"{paths[0]}: {key} = True: a bundle is made of a whole result set, where it was measured")
    return config


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the bundle, and of the folder in it")
    parser.add_argument("--config", type=Path, nargs="+", default=[Path("config.yaml")], help="what it was made by")
    parser.add_argument("--targets", nargs="*", default=[], help="of Snakemake; none: everything")
    parser.add_argument("--out", type=Path, default=Path("bundles"), help="folder for the archive")
    args = parser.parse_args()
    path, source = args.out / f"{args.name}.tar.gz", ", ".join(map(str, args.config))
    if re.fullmatch(NAME, args.name) is None:
        raise UserError(f"{args.name!r} is no name of a bundle; take letters, digits, '.', '_' and '-'")
    config = merged(args.config)
    made = contents.made_by_workflow(args.targets, args.config, config.experiments)
    contents.refuse_unfinished(made)
    results = dict(contents.results_of(made, config))
    contents.refuse_damaged(
        [path for name, path in results.items() if name.startswith("results/")], Path(config.results_dir)
    )
    files: dict[str, Path | bytes] = dict(results)
    experiments = [name for name in config.experiments if f"results/{name}/tables/records.csv" in files]
    if not experiments:
        raise UserError(f"{' '.join(args.targets)}: of no experiment's trials; name experiments, tables or figures")
    records, timings = (
        {name: read_table(Path(config.results_dir, name, "tables"), table) for name in experiments}
        for table in ("records", "timings")
    )
    contents.refuse_foreign_records(Path(config.results_dir), records)
    files |= dict(contents.code_files()) | dict(contents.own_code_files(config))
    more = args.config[0].with_name("more.yaml")  # which the Snakefile loads by itself
    measured_by = rerun_command(config.results_dir, config.data_dir, [path for path in args.config[1:] if path != more])
    files["config.yaml"] = contents.config_text(config, experiments, source, measured_by).encode()
    files["installed.txt"] = contents.installed().encode()
    files["README.md"] = readme(args.name, args.targets, list(files), records, timings, source).encode()
    write_archive(path, args.name, files)
    size_MB = path.stat().st_size / 1e6
    print(f"{path}: {len(files) + 1} files, {size_MB:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
