def records_of(wildcards):
    """The records that tables are made from; with partial=true none is asked for: what is there is taken."""
    if CONFIG.partial:
        return []
    return [f"{RESULTS}/{trial.folder}/{RECORD}" for trial in PLANS[wildcards.experiment]]


def records_that_exist(wildcards):
    """With partial=true: which records there are, and when they were written, so that tables follow them."""
    if not CONFIG.partial:
        return None
    paths = [Path(RESULTS, trial.folder, RECORD) for trial in PLANS[wildcards.experiment]]
    return {str(path): path.stat().st_mtime_ns for path in paths if path.exists()}


def plan_of(wildcards):
    """What decides an experiment's plan, as JSON: a change elsewhere in the config re-makes no table."""
    keep = {"datasets": True, "experiments": {wildcards.experiment}}
    return CONFIG.model_dump_json(include=keep, by_alias=True, exclude_none=True)


rule collect:
    input:
        records_of,
        script=ancient(f"{SCRIPTS}/collect.py"),
    output:
        [TABLE_FILES.replace("{table}", table) for table in TABLES],
    log:
        f"{RESULTS}/{{experiment}}/logs/collect.log",
    params:
        config=plan_of,
        code=digest_of(("collect.py",)),
        existing=records_that_exist,
        folder=lambda wildcards, output: os.path.dirname(output[0]),
        partial="--partial" if CONFIG.partial else "",
    resources:
        trial_slot=1,
    shell:
        "{PYTHON} {input.script} {wildcards.experiment} --config={params.config:q} --results={RESULTS}"
        " --out={params.folder} {params.partial} > {log} 2>&1"


for _figure in FIGURES:

    rule:
        name:
            f"plot_{_figure}"
        input:
            expand(TABLE_FILES, table=FIGURES[_figure].tables, allow_missing=True),
            script=ancient(f"{SCRIPTS}/plot.py"),
        output:
            report(
                FIGURE_FILES.replace("{figure}", _figure).replace("{format}", "svg"),
                caption=f"../report/{_figure}.rst",
                category="{experiment}",
                labels={"figure": _figure},
            ),
            expand(FIGURE_FILES, figure=_figure, format=FORMATS[1:], allow_missing=True),
        log:
            f"{RESULTS}/{{experiment}}/logs/{_figure}.log",
        params:
            figure=_figure,
            settings=CONFIG.figures.model_dump_json(),
            code=digest_of(("plot.py",)),
            tables=lambda wildcards, input: os.path.dirname(input[0]),
        resources:
            trial_slot=1,
        shell:
            "{PYTHON} {input.script} {params.figure} --tables={params.tables} --settings={params.settings:q}"
            " --out {output} > {log} 2>&1"
