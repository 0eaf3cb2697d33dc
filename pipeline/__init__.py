"""Dask, zarr and configuration: data, kernel blocks, batches, storage. Knows svmcore, never Prefect."""
