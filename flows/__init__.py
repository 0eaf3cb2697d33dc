"""Prefect flows, schedules and the command line over the functions of `pipeline`."""
