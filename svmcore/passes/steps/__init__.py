"""Steps of solvers, and what decides who takes part in them."""
