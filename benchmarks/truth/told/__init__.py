"""What a run comes to, in numbers and in words."""
