"""What is predicted from which trials, and what was predicted when: around scaling_model, which computes it."""
