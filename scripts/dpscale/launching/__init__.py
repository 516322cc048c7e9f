"""Launches of ranks, whatever they run: how they are started, where, and what becomes of each attempt."""
