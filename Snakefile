# dpscale: how data-parallel training scales, and why it stops. What is measured stands in config.yaml.
#
#   snakemake --cores 2             everything: trials, tables, figures, pages
#   snakemake --cores 2 plan        what would be measured, and how long it can take at most
#   snakemake --cores 2 -n          what would run now
#   snakemake --cores 2 <name>      one experiment, or tables, figures, collectives, prepare, or any single file of results/


report: "workflow/report/workflow.rst"


include: "workflow/rules/config.smk"
include: "workflow/rules/common.smk"
include: "workflow/rules/runs.smk"


if not CONFIG.from_records:  # else a record that is missing is an error, for there is no rule that makes one

    include: "workflow/rules/data.smk"
    include: "workflow/rules/largest.smk"
    include: "workflow/rules/trials.smk"
    include: "workflow/rules/time_collectives.smk"
    include: "workflow/rules/predict.smk"


include: "workflow/rules/collectives.smk"
include: "workflow/rules/predictions.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/print.smk"
include: "workflow/rules/explore.smk"
include: "workflow/rules/advise.smk"
include: "workflow/rules/compare.smk"
include: "workflow/rules/targets.smk"


rule all:
    default_target: True
    input:
        rules.tables.input,
        [figures_of(experiment) for experiment in PLANS],
        rules.pages.input,
