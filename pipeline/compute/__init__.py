"""Where tasks run: `workers` for all kinds, a `cluster` of them, what it changes in the `driver`, and `progress`."""
