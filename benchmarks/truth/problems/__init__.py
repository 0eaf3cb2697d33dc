"""What is asked: the tables, the design of the problems, and each as a program in numbers."""
