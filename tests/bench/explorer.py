"""How long the explorer of many trials takes to open, and to show fewer of them: in chromium, until its views are drawn."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import REPOSITORY, SCRIPTS, Comparison, NotHere, Settings, run_python

from dpscale.explaining.causes import CAUSES
from dpscale.tables.schema import frame

sys.path.insert(0, str(REPOSITORY / "tests"))
from browsing import browsing, chromium, opened

OPENS_IN_S, FILTERS_IN_S = 3.0, 0.2
LAUNCHERS, DEVICES, REPEATS = ("spawn", "torchrun"), (1, 2, 4, 8, 16), 10
# one launcher, one topology, one strategy, and all again
CONTROLS = [*(f'input[value="{value}"]' for value in ("torchrun", "1x4", "variant_0")), "#clear"]
READY = "html[data-ready]"
# Everything that a view draws ends in one of these: the last of them is when a reader sees it.
LAST_STROKE = """
window.lastStroke = 0;
for (const name of ["stroke", "fill", "fillText", "clearRect"]) {
  const draw = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...given) {
    window.lastStroke = performance.now();
    return draw.apply(this, given);
  };
}
"""
FILTER_S = """
selector => new Promise(resolve => {
  const control = document.querySelector(selector);
  const began = performance.now();
  control.click();
  setTimeout(() => resolve((window.lastStroke - began) / 1000), 700);
})
"""


def run(settings: Settings) -> Iterator[Comparison]:
    executable = chromium()
    if executable is None:
        raise NotHere("no chromium on the PATH (Debian: apt install chromium)")
    tables = made_up_tables(settings.trials)
    page = make_page(tables, settings.folder)
    opens, filters, filters_cpu, loads = [], [], [], []
    with browsing(executable) as browser:
        for _ in range(settings.pairs):
            loads.append(os.getloadavg()[0])
            with opened(browser, page, viewport={"width": 1280, "height": 900}) as tab:
                tab.add_init_script(LAST_STROKE)
                tab.reload()
                tab.wait_for_selector(READY, state="attached")
                tab.wait_for_timeout(700)
                opens.append(tab.evaluate("window.lastStroke") / 1000)
                cpu_s = cpu_clock(tab)
                for control in CONTROLS:
                    before_s = cpu_s()
                    filters.append(tab.evaluate(FILTER_S, control))
                    filters_cpu.append(cpu_s() - before_s)
                if tab.complaints:
                    raise RuntimeError("; ".join(tab.complaints))
    facts = {
        "trials": len(tables["timings"]),
        "cells": len(tables["summary"]),
        "page_bytes": page.stat().st_size,
        "load_average_1_min": loads,
    }
    yield Comparison(
        name=f"explorer of {len(tables['timings']):,} trials opens, its views drawn",
        first="from navigation to the last stroke, s",
        second="1 s",
        pairs=[(seconds, 1.0) for seconds in opens],
        goal=OPENS_IN_S,
        goal_is="at most",
        facts=facts,
    )
    yield Comparison(
        name="explorer filters, its views drawn anew",
        first="from a click to the last stroke, s",
        second="1 s",
        pairs=[(seconds, 1.0) for seconds in filters],
        goal=FILTERS_IN_S,
        goal_is="at most",
        facts=facts | {"cpu_s_of_the_pages_thread": filters_cpu},
    )


def cpu_clock(tab: Any) -> Callable[[], float]:
    """The CPU time of the page's thread: what filtering takes where nobody else wants the machine."""
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read() -> float:
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"])

    return read


def make_page(tables: dict[str, pd.DataFrame], folder: Path) -> Path:
    """As the pipeline does, by explore.py."""
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    page = folder / "explore.html"
    run_python([SCRIPTS / "explore.py", "many", f"--tables={folder}", "--rerun=results/many/", f"--out={page}"])
    return page


def made_up_tables(trials: int) -> dict[str, pd.DataFrame]:
    """Of so many trials in one experiment, ten launches to a cell; every cell is measured, explained and predicted."""
    rng = np.random.default_rng(0)
    per_variant = len(LAUNCHERS) * len(DEVICES) * REPEATS
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("summary", "timings", "records", "causes", "prediction")
    }
    for number in range(max(2, -(-trials // per_variant))):  # one alone would leave nothing to filter
        for launcher in LAUNCHERS:
            for devices in DEVICES:
                add_cell(rows, f"variant_{number}", launcher, devices, rng)
    return {name: frame(name, found) for name, found in rows.items()}


def add_cell(rows: dict[str, list[dict[str, Any]]], strategy: str, launcher: str, devices: int, rng: Any) -> None:
    cell = {"experiment": "many", "strategy": strategy, "base": "ddp", "launcher": launcher, "nodes": 1}
    cell |= {"devices_per_node": devices, "devices": devices}
    efficiency = float(rng.uniform(0.5, 1) ** np.log2(2 * devices))
    epoch_s = 10 / (devices * efficiency)
    whole = {"status": "ok", "precision": "fp32", "repeats": REPEATS, "repeats_planned": REPEATS}
    whole |= {"spread": "95 % interval", "speedup_spread": "95 % interval", "base_cell": f"{strategy}/{launcher}/1x1"}
    rows["summary"].append(
        cell
        | whole
        | around("speedup", devices * efficiency)
        | around("scaling_efficiency", efficiency)
        | around("epoch_time_s", epoch_s)
        | around("utilization_percent", 100 * efficiency)
        | {"peak_memory_MiB": 500.0, "effective_precision": "weights float32, compute float32"}
    )
    parts = dict(zip(CAUSES, rng.uniform(0, 0.01, len(CAUSES)), strict=True))
    rows["causes"].append(cell | {"status": "ok", "rounds": 6} | parts | around("step_s", sum(parts.values())))
    predicted = {"model": "measured parts", "current": True, "calibrated_up_to": 2, "verdict": "hit"}
    predicted |= {"calibrating": devices <= 2, "limited_by": "contention"}
    rows["prediction"].append(
        cell | predicted | around("predicted_epoch_time_s", epoch_s * float(rng.uniform(0.9, 1.1)))
    )
    for repeat in range(REPEATS):
        trial = cell | {"repeat": repeat, "status": "ok"}
        rows["timings"].append(trial | {"epoch_time_s": epoch_s * float(rng.uniform(0.95, 1.05))})
        record = f"many/trials/{strategy}/{launcher}/1x{devices}/r{repeat}/record.json"
        rows["records"].append(trial | {"record": record})


def around(name: str, value: float) -> dict[str, float]:
    return {name: value, f"{name}_low": 0.95 * value, f"{name}_high": 1.05 * value}
