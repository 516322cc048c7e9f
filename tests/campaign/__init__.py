"""The same experiment again and again under faults that a seed draws: `make campaign`."""
