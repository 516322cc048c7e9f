# Figures for a journal: snakemake --cores 2 print_figures
for _figure in FIGURES:

    rule:
        name:
            f"plot_{_figure}_for_print"
        input:
            tables_of_figure(_figure),
            script=ancient(f"{SCRIPTS}/plot.py"),
        output:
            expand(PRINT_FILES, figure=_figure, ending=PRINTED, allow_missing=True),
        log:
            f"{RESULTS}/{{experiment}}/logs/{_figure}_for_print.log",
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            trial_slot=1,
        params:
            figure=_figure,
            settings=CONFIG.figures.model_dump_json(),
            code=digest_of(("plot.py",)),
            tables=lambda wildcards, input: os.path.dirname(input[0]),
        shell:
            "python {input.script:q} {params.figure} --tables={params.tables:q} --settings={params.settings:q} --for-print"
            " --out {output:q} 2>&1 | tee {log:q}"


rule print_figures:
    input:
        [printed_figures_of(experiment) for experiment in PLANS],
