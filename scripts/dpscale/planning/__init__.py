"""The plan: config -> trials, their contradictions, and the order in which they run."""
