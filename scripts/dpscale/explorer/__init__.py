"""Tables -> explore.html: one page, offline, that filters an experiment's cells and leads from each to its records."""
