"""The library behind the pipeline's entry points: see the table in README.md for what each module knows."""
