# A command line holds no list of records, which thousands of trials would make too long: scripts get the plan.
rule collect:
    input:
        records_of,
        published_of,
        script=ancient(f"{SCRIPTS}/collect.py"),
    output:
        [table_file(table) for table in TABLES if table not in MADE_APART],
    log:
        f"{RESULTS}/{{experiment}}/logs/collect.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        config=plan_of,
        code=digest_of(("collect.py",)),
        existing=records_that_exist,
        results=lambda wildcards, output: str(Path(output[0]).parents[2]),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
        partial="--partial" if CONFIG.partial else "",
    shell:
        "python {input.script:q} {wildcards.experiment} --config={params.config:q} --results={params.results:q}"
        " --out={params.folder:q} {params.partial} 2>&1 | tee {log:q}"


rule methods:
    input:
        expand(TABLE_FILES, table=METHODS_TABLES, allow_missing=True),
        data=data_of_experiment,
        script=ancient(f"{SCRIPTS}/methods.py"),
    output:
        report(
            f"{RESULTS}/{{experiment}}/methods.html",
            caption="../report/methods.rst",
            category="{experiment} methods",
            labels={"page": "methods"},
        ),
    log:
        f"{RESULTS}/{{experiment}}/logs/methods.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        config=plan_of,
        code=digest_of(("methods.py",)),
        results=lambda wildcards, output: str(Path(output[0]).parents[1]),
        data=lambda wildcards: os.path.dirname(manifest_of(PLANS[wildcards.experiment][0].dataset)),
    shell:
        "python {input.script:q} {wildcards.experiment} --config={params.config:q} --results={params.results:q}"
        " --data={params.data:q} --out={output:q} 2>&1 | tee {log:q}"


for _figure in FIGURES:

    rule:
        name:
            f"plot_{_figure}"
        input:
            tables_of_figure(_figure),
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
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            trial_slot=1,
        params:
            figure=_figure,
            settings=CONFIG.figures.model_dump_json(exclude={"print"}),
            code=digest_of(("plot.py",)),
            tables=lambda wildcards, input: os.path.dirname(input[0]),
        shell:
            "python {input.script:q} {params.figure} --tables={params.tables:q} --settings={params.settings:q}"
            " --out {output:q} 2>&1 | tee {log:q}"
