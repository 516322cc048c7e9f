"""What is trained, and on what: the MODELS and DATASETS tables, the prepared form of a dataset, exact sharding."""
