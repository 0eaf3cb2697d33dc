"""What is to be trained, before anything is solved: rows, targets, C_i, machines, and how much of K fits."""
