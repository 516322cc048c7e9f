"""How it was measured, and how far the numbers can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from dpscale.methods.study import Section, Study, counted, different, number
from dpscale.metrics import FLAG_OTHERS_ABOVE_PERCENT
from dpscale.statistics import RESAMPLES
from dpscale.trial import PLACEBO
from dpscale.words import listed


def measuring(study: Study) -> Section:
    return Section("Measurement", [list(_order(study)), list(_times(study)), list(_use(study)), list(_more(study))])


def _order(study: Study) -> Iterator[str]:
    trial = study.trial
    if trial.epochs is not None:
        yield (
            f"Of the {counted(trial.epochs, 'epoch')} of a launch the first {counted(trial.warmup_epochs or 0, 'epoch')} "
            f"{'is' if trial.warmup_epochs == 1 else 'are'} warm-up and in no result; "
            f"{counted(trial.epochs - (trial.warmup_epochs or 0), 'epoch')} {'is' if trial.epochs - (trial.warmup_epochs or 0) == 1 else 'are'} timed."
        )
    else:
        yield (
            f"Of the {counted(trial.steps or 0, 'step')} of a launch the first {trial.warmup_steps:,} are warm-up and in no "
            f"result; {(trial.steps or 0) - (trial.warmup_steps or 0):,} are timed, and the time of an epoch is computed from them."
        )
    yield (
        "Repeats are separate launches: all cells once, in an order drawn from the seed, then all again in another; no two ran "
        "at a time."
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
    if any(trial.explain for trial in study.trials):
        yield (
            "After each training under DDP the same launch went on with blocks of steps under controls (one rank alone, without "
            "and within DDP; all ranks, without and with the exchange; a batch that stays on the device), in a random order "
            "that all ranks share; the time of a step is split into causes from their stamps."
        )
    asked = study.settings.collectives
    if asked.operations:
        yield (
            f"Collectives were timed alone ({listed(asked.operations)}; {listed(asked.dtypes)}; {asked.sizes}), in at most "
            f"{counted(asked.blocks, 'block')} of calls of each size, each as long as its slowest rank; their results were "
            "compared with what they must be. Bus bandwidth is as nccl-tests defines it."
        )
    if (up_to := study.settings.prediction.calibrate_up_to) is not None:
        yield (
            f"Epoch times on more devices were predicted from launches on at most {up_to}, and written down before larger ones ran; "
            f"the exchange was calibrated from {study.settings.prediction.exchanges}."
        )
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
    tested = pairs[pairs.p_value_holm.notna()]
    if tested.empty:
        return
    yield (
        "A strategy is called faster or slower than another on the same topology only if Mann and Whitney's two-sided rank test "
        f"at 5 %, adjusted by Holm's method for all {counted(len(tested), 'pair')}, and the 95 % interval of the ratio of throughputs "
        "both say so; Cliff's delta is given as the size of the effect."
    )
    verdicts = pairs.verdict.str.partition(":")[0].value_counts()
    yield f"Verdicts: {', '.join(f'{verdict} {count}' for verdict, count in verdicts.items())}."
