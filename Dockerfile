# An image that runs marginflow: docker build -t marginflow . && docker run -v "$PWD:/work" marginflow run digits.yaml
# tests/full/test_dockerfile.py runs its steps one by one in an empty environment, where there is no daemon.
FROM python:3.12-slim

RUN useradd --create-home --uid 1000 marginflow
ENV PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 NUMBA_CACHE_DIR=/home/marginflow/.numba MPLCONFIGDIR=/tmp/matplotlib

WORKDIR /source
COPY . .
RUN pip install --quiet --constraint constraints.txt ".[onnx]"

USER marginflow
WORKDIR /work
# compiled for the processor of the build: set NUMBA_CPU_NAME=generic where others run it
RUN marginflow warm

ENTRYPOINT ["marginflow"]
CMD ["--help"]
