rule explore:
    input:
        expand(TABLE_FILES, table=PAGE_TABLES, allow_missing=True),
        script=ancient(f"{SCRIPTS}/explore.py"),
    output:
        report(
            f"{RESULTS}/{{experiment}}/explore.html",
            caption="../report/explore.rst",
            category="{experiment}",
            labels={"figure": "explore"},
        ),
    log:
        f"{RESULTS}/{{experiment}}/logs/explore.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        palette=CONFIG.figures.palette,
        rerun=command_of_trials,
        code=digest_of(("explore.py",)),
        parts=digest_of_parts(),
        tables=lambda wildcards, input: os.path.dirname(input[0]),
    shell:
        "python {input.script:q} {wildcards.experiment} --tables={params.tables:q} --palette={params.palette:q}"
        " --rerun={params.rerun:q} --out={output:q} 2>&1 | tee {log:q}"
