"""From where on a number is not to be trusted as it stands: what figures and advice agree on."""

FLAG_BESIDE_TRAINING_ABOVE_PERCENT = 15.0  # steps under controls, against those of the training
