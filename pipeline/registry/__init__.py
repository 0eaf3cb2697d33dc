"""What is known of all runs of a store: aliases such as `champion`, the gates before them, lists of what ran."""
