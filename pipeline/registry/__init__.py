"""What runs are called beside their ids: aliases such as `champion`, and who moved them when."""
