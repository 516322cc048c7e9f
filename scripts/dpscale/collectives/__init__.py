"""How long collectives take, apart from any training: what each is, runs of them, times and checks."""
