"""What an answer is worth, by code that shares nothing with a solver, and what is held against it."""
