"""What is run: the cases, and one file for each comparison."""
