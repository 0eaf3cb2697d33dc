"""What helps to write a config: a first one from the data, the schema for editors, where each value comes from."""
