"""Code in forks of a process that has imported what most of it needs: that alone would take each a second or more."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVER = """
import json, os, sys

for line in sys.stdin:
    children = []
    for code, argv, folder, output in json.loads(line):
        if not (child := os.fork()):
            os.chdir(folder)
            sys.path.insert(0, folder)
            told = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(told, 1)
            os.dup2(told, 2)
            sys.argv[1:] = argv
            exec(compile(code, "forked", "exec"), {"__name__": "__main__"})
            sys.exit()
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""


class Forks:
    """Runs code, several at once where asked; in processes of their own but on Linux, where libraries stand no fork."""

    def __init__(self, server):
        self.server = server

    def run(self, folder, *codes, argvs=None):
        """(exit code, output) of each of the `codes`, which run at the same time in a folder with their `argvs`."""
        argvs = argvs or [[]] * len(codes)
        outputs = [Path(f"{folder}.{k}.output") for k in range(len(codes))]
        calls = [[*call[:2], str(folder), str(call[2])] for call in zip(codes, argvs, outputs, strict=True)]
        ended = self._forked(calls) if self.server else [process.wait() for process in [_process(c) for c in calls]]
        return [(code, output.read_text()) for code, output in zip(ended, outputs, strict=True)]

    def _forked(self, calls):
        print(json.dumps(calls), file=self.server.stdin, flush=True)
        return json.loads(self.server.stdout.readline())


def _environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _process(call):
    code, argv, folder, output = call
    with open(output, "w") as told:
        command = [sys.executable, "-c", code, *argv]
        return subprocess.Popen(command, cwd=folder, env=_environment(), stdout=told, stderr=told)


@contextlib.contextmanager
def forks_with(imports):
    """`Forks` of a process that ran the line `imports`."""
    if sys.platform != "linux":
        yield Forks(None)
        return
    command = [sys.executable, "-c", imports + SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=_environment(), **pipes) as server:
        yield Forks(server)
        server.stdin.close()
