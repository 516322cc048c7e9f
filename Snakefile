# dpscale: how data-parallel training scales, and why it stops. What is measured stands in config.yaml.
#
#   snakemake --cores 2             everything: trials, tables, figures
#   snakemake --cores 2 plan        what would be measured, and how long it can take at most
#   snakemake --cores 2 -n          what would run now
#   snakemake --cores 2 <name>      one experiment, or tables, figures, collectives, prepare, or any single file of results/


# the folder's own, or where it has none, as with `snakemake -s elsewhere/Snakefile`, the checkout's
configfile: "config.yaml" if os.path.exists("config.yaml") else workflow.source_path("config.yaml")


# what `make more` wrote beside it
MORE = os.path.join("" if os.path.exists("config.yaml") else workflow.basedir, "more.yaml")
if os.path.exists(MORE):

    configfile: MORE


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/runs.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/largest.smk"
include: "workflow/rules/trials.smk"
include: "workflow/rules/collectives.smk"
include: "workflow/rules/predict.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/advise.smk"
include: "workflow/rules/compare.smk"
include: "workflow/rules/targets.smk"


rule all:
    default_target: True
    input:
        rules.tables.input,
        rules.figures.input,
        rules.advice.input,
