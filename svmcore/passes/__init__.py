"""Compiled loops, each with its reason; they know arrays alone."""
