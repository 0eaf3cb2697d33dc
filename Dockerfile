# The image of the command line, of Dask's scheduler and workers, and of Prefect's Docker pools: it names no entrypoint.
#   docker build -t marginflow . && docker run --rm -v "$PWD:/work" marginflow marginflow run digits.yaml
# tests/full/test_dockerfile.py runs its steps one by one in an empty environment.
FROM python:3.11-slim

RUN useradd --create-home --uid 1000 marginflow
ENV PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 NUMBA_CACHE_DIR=/home/marginflow/.numba MPLCONFIGDIR=/tmp/matplotlib

WORKDIR /source
COPY . .
RUN pip install --quiet --constraint constraints.txt ".[cluster,onnx]"

USER marginflow
WORKDIR /work
# compiled for the processor of the build: set NUMBA_CPU_NAME=generic where others run it
RUN marginflow warm

CMD ["marginflow", "--help"]
