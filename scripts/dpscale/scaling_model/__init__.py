"""What more devices would do, from what few have shown: parts that are each measured, added up. Pure arithmetic.

links.py says how long an all-reduce takes, overlap.py how much of DDP's hides behind backward, compute.py what one device
and its stragglers take, prediction.py adds them up, calibration.py gets all of them from measurements, with intervals, and
what_if.py asks about machines that are not there. docs/prediction.md explains the model and its limits.

Where nothing but times on few devices is known, as of published tables, reduced.py predicts the rest with what other
systems have shown, and laws.py are the simple laws beside both. docs/published.md explains it.
"""
