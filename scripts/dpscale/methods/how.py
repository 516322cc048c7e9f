"""How it was measured, and how far the numbers can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from dpscale.methods.beside import beside
from dpscale.methods.overlap import order
from dpscale.methods.study import Section, Study, different, number
from dpscale.metrics import FLAG_OTHERS_ABOVE_PERCENT
from dpscale.statistics import RESAMPLES
from dpscale.trial import PLACEBO
from dpscale.words import counted, listed


def measuring(study: Study) -> Section:
    return Section("Measurement", [list(_order(study)), list(_times(study)), list(_use(study)), list(_more(study))])


def _order(study: Study) -> Iterator[str]:
    trial = study.trial
    if trial.epochs is not None:
        yield f"{_warm_up('epoch', trial.epochs, trial.warmup_epochs or 0)}."
    else:
        parts = _warm_up("step", trial.steps or 0, trial.warmup_steps or 0)
        yield f"{parts}, and the time of an epoch is computed from that."
    yield order(study)


def _warm_up(part: str, planned: int, warmup: int) -> str:
    first = f"first {part} is" if warmup == 1 else f"first {warmup:,} {part}s are"
    timed = planned - warmup
    return (
        f"Of the {counted(planned, part)} of a launch the {first} warm-up and in no result; "
        f"{counted(timed, part)} {'is' if timed == 1 else 'are'} timed"
    )


def _times(study: Study) -> Iterator[str]:
    cuda = study.trial.device == "cuda"
    synchronised = "and the device is drained" if cuda else "and the work of the CPU is done"
    yield (
        f"One module reads the clock, the same for every strategy. All ranks begin an interval together; at its edges ranks meet "
        f"{synchronised}, not at every step, and it lasts as long as its slowest rank."
    )
    if cuda:
        yield "Within it, phases of a step are timed by CUDA events in the stream."
    yield (
        "The epoch time is of training alone; throughput is the number of samples that the loaders delivered over that time, "
        "of all ranks together."
    )
    if study.trial.evaluate:
        yield "The whole test set is evaluated apart, each sample exactly once over all ranks, and timed apart."
    yield "Start-up, from the start of the launcher to the first step, is in no result."
    base = different(study.tables["summary"].base_cell.dropna())
    if base:
        yield f"Speed-up is throughput over that of one device, all else equal ({listed(base)}); efficiency is speed-up over N."


def _use(study: Study) -> Iterator[str]:
    if study.trial.device == "cuda":
        yield (
            "Utilisation is NVML's, the share of time in which any kernel ran, as the mean over GPUs and the timed steps: it says "
            "nothing of how full a GPU was. Peak memory is what PyTorch's caching allocator held at most, of the rank that held most."
        )
    else:
        yield (
            "Utilisation is the CPU time of the ranks over ranks x threads x time, in the timed steps. Peak memory is the largest "
            "resident set of any rank (VmHWM)."
        )
    interval_s = study.trial.monitor_interval_s
    if interval_s is not None:
        yield f"A monitor of low priority sampled ranks and devices of every node every {interval_s:g} s."
    others = study.tables["timings"].others_cpu_percent.dropna()
    if len(others):
        above = int((others > FLAG_OTHERS_ABOVE_PERCENT).sum())
        flagged = (
            f"; above {FLAG_OTHERS_ABOVE_PERCENT:g} %, in {counted(above, 'launch', 'launches')}, a warning says so"
            if above
            else ""
        )
        yield f"Other processes used {others.min():.1f} to {others.max():.1f} % of the usable CPUs meanwhile{flagged}."
    if crowded := different(record.trial.cell for record in study.measured if record.oversubscribed):
        yield f"More threads than usable CPUs, as was asked for: {listed(crowded)}."


def _more(study: Study) -> Iterator[str]:
    yield from beside(study)
    checked = [record for record in study.measured if record.weights_max_difference is not None]
    if checked:
        worst = max(float(record.weights_max_difference or 0) for record in checked)
        yield (
            f"After training the ranks' weights were compared in {counted(len(checked), 'launch', 'launches')}: they differed by at "
            f"most {worst:g}. Ranks that differ by more than their strategy allows leave no result."
        )
    overhead = study.tables["timings"].measuring_overhead_percent.dropna()
    if len(overhead):
        yield f"The marks of the clock cost at most {overhead.max():.2g} % of a step."


def statistics(study: Study) -> Section:
    return Section("Statistics", [list(_estimates(study)), list(_tests(study))])


def _estimates(study: Study) -> Iterator[str]:
    good = study.tables["summary"][study.tables["summary"].status == "ok"]
    if good.empty:
        return
    yield "A cell is the median over its launches; rates are ratios of sums, and no ratio is averaged."
    spreads, of_ratios = (different(good[name].dropna()) for name in ("spread", "speedup_spread"))
    if any("interval" in spread for spread in spreads):
        yield "From six launches on, low and high are a nonparametric 95 % interval by order statistics."
    if ranges := [spread for spread in spreads if "interval" not in spread]:
        yield f"With fewer than six launches they are no interval: {listed(ranges)}."
    if ranges := [spread for spread in of_ratios if "interval" not in spread and spread not in spreads]:
        yield f"Nor are those of ratios of cells with different numbers of launches, the range of all quotients: {listed(ranges)}."
    if any("interval" in spread for spread in of_ratios):
        yield (
            f"Intervals of speed-ups and other ratios are the percentile bootstrap's of the ratio of medians "
            f"({RESAMPLES:,} resamples)."
        )
    outliers = int(good.outliers.sum())
    yield f"Launches beyond Tukey's fences of their cell are marked and kept: {outliers}."
    drifts = sorted({text for texts in good.warnings.fillna("") for text in texts.split("; ") if "drifted" in text})
    yield from (f"Warning: {text}." for text in drifts)
    for cell in good[(good.strategy == PLACEBO) & good.noise_floor_percent.notna()].itertuples():
        yield (
            f"Noise floor: one cell, measured under two names, may differ by up to {number(float(str(cell.noise_floor_percent)))} % "
            "from itself."
        )


def _tests(study: Study) -> Iterator[str]:
    pairs = study.tables["comparisons"]
    judged = pairs[pairs.strategy != PLACEBO]
    tested = int(judged.p_value_holm.notna().sum())
    if judged.empty:
        return
    if tested:
        adjusted_for = "the one pair" if tested == 1 else f"all {tested:,} pairs"
        yield (
            "A strategy is called faster or slower than another on the same topology only if Mann and Whitney's two-sided rank "
            f"test at 5 %, adjusted by Holm's method for {adjusted_for} with enough launches, and the 95 % interval of the "
            "ratio of throughputs both say so; Cliff's delta is given as the size of the effect."
        )
    else:
        yield "No strategy is called faster or slower than another: no pair on one topology has enough launches for a test."
    verdicts = judged.verdict.str.partition(":")[0].value_counts()
    yield f"Verdicts: {', '.join(f'{verdict} {count}' for verdict, count in verdicts.items())}."
    for pair in pairs[pairs.strategy == PLACEBO].itertuples():
        yield f"The placebo and {pair.other} stand apart from these, without that adjustment: {pair.verdict}."
