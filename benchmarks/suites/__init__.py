"""What is run: one file for each comparison, in rooms by what is compared."""
