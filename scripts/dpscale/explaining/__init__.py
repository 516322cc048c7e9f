"""Where a step's time goes: steps under controls after the training, their stamps, and the causes in them."""
