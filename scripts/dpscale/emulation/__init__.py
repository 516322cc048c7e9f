"""A device and a network that are not there: time passes as it would with them, so that two cores carry many ranks."""
