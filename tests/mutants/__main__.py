"""Plant faults in a copy of the source, one at a time, and see whether the tests of each module fail: `make mutants`.

cosmic-ray makes the faults and runs the tests. This file only chooses (`modules.toml`), adds the faults that no
operator makes (`planted.toml`), and compares what survived with what is explained (`explained.toml`). Exit 1 for a
survivor without an explanation, or a planted fault that nobody noticed.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRATCH = ROOT / "build" / "mutants"
TREE = SCRATCH / "tree"
COPIED = ("svmcore", "pipeline", "flows", "tests", "config", "pyproject.toml")

# What people get wrong: a sign, a bound, a side, an end. The other operators of cosmic-ray mostly make type errors.
OPERATORS = "|".join(
    (
        "ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|Pow_Mul|FloorDiv_Mul|Mod_Mul)",
        "ReplaceBinaryOperator_(BitOr_BitAnd|BitAnd_BitOr|BitXor_BitOr|RShift_LShift|LShift_RShift)",
        "ReplaceComparisonOperator_(Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt)",
        "ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is)",
        r"ReplaceUnaryOperator_Delete_\w+|Replace(True|False|And|Or|Break|Continue)With\w+",
        "AddNot|ExceptionReplacer|NumberReplacer|ZeroIterationForLoop",
    )
)


class Survivor(NamedTuple):
    """A fault that no test noticed: the function it is in, the line before and after."""

    path: str
    function: str
    was: str
    now: str


class Count(NamedTuple):
    """Faults of a module: how many ran, of how many; how many were noticed and how many are explained."""

    name: str
    total: int
    ran: int
    noticed: int
    explained: int
    seconds: float


def main() -> int:
    """Run the chosen modules and print the table."""
    given = arguments()
    chosen = tomllib.loads((HERE / "modules.toml").read_text())
    chosen = {name: module for name, module in chosen.items() if given.module in (None, name)}
    if not chosen:
        sys.exit(f"unknown module {given.module}; see {HERE / 'modules.toml'}")
    copy_tree()
    end = time.monotonic() + 60.0 * given.minutes
    table, wrong, notes = [], [], []
    for name, module in chosen.items():
        with forks(name, module) as test:
            wrong += [f"not noticed: {what}" for what in planted(name, test)]
            found, survivors = mutants(name, module, test, end)
        known = {survivor for survivor in explained() if survivor.path == module["path"]}
        new = [survivor for survivor in survivors if survivor not in known]
        if found.ran == found.total:
            notes += [f"explained, but noticed by now: {s.path} {s.function}: {s.now}" for s in known - set(survivors)]
        table.append(found._replace(explained=len(survivors) - len(new)))
        wrong += [f"survived: {s.path} {s.function}\n  - {s.was}\n  + {s.now}" for s in new]
        report(table[-1:])
    report(table)
    print("\n".join(notes + wrong))
    return 1 if wrong else 0


def arguments() -> argparse.Namespace:
    """What to run, and for how long."""
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("--module", help="one of modules.toml; default all")
    parser.add_argument("--minutes", type=float, default=120.0, help="after which no further fault is tried")
    return parser.parse_args()


def copy_tree() -> None:
    """Faults are planted in a copy: a run that is killed leaves none behind."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, TREE / name)


# ---- runs of the tests
def pytest_options(module: dict[str, Any]) -> list[str]:
    """Run the tests of a module, to the first that fails."""
    quick = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    warnings = [] if module.get("jit", True) else ["-o", "filterwarnings="]  # of integers that wrap, as they should
    return [*quick, *warnings, *module["tests"]]


def environment(module: dict[str, Any]) -> dict[str, str]:
    """Compiled code in a folder of its own; with `jit = false` Python runs the compiled functions as they are."""
    jit = {} if module.get("jit", True) else {"NUMBA_DISABLE_JIT": "1"}
    own = {"PYTHONPATH": str(TREE), "NUMBA_CACHE_DIR": str(SCRATCH / "numba"), "OPENBLAS_NUM_THREADS": "1"}
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return os.environ | own | jit | quick


@contextlib.contextmanager
def forks(name: str, module: dict[str, Any]) -> Iterator[list[str]]:
    """The command that runs the tests of a module in the copy, from a process that waits with its imports done."""
    script = str(HERE / "forks.py")
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        address = Path(folder) / "socket"  # its path must be short
        paths = ",".join({module["path"], *(fault["path"] for fault in planted_in(name))})
        facts = [paths, str(module["timeout"]), ",".join(module.get("kept", []))]
        given = ["serve", str(address), *facts, *pytest_options(module)]
        server = subprocess.Popen([sys.executable, script, *given], cwd=TREE, env=environment(module))
        test = [sys.executable, "-S", script, "ask", str(address)]
        try:
            while not address.exists() and server.poll() is None:
                time.sleep(0.05)
            if server.poll() is not None or subprocess.run(test, check=False).returncode:
                sys.exit(f"the tests of {name} fail without a fault")
            yield test
        finally:
            server.kill()
            server.wait()


def planted_in(name: str) -> list[dict[str, str]]:
    """Faults of `planted.toml` that are for the tests of a module."""
    faults = tomllib.loads((HERE / "planted.toml").read_text())["planted"]
    return [fault for fault in faults if fault["module"] == name]


def planted(name: str, test: list[str]) -> list[str]:
    """Those that the tests of a module should notice and do not."""
    missed = []
    for fault in planted_in(name):
        path = TREE / fault["path"]
        sound = path.read_text()
        if sound.count(fault["was"]) != 1:
            sys.exit(f"planted.toml: {fault['was']!r} must be once in {fault['path']}")
        path.write_text(sound.replace(fault["was"], fault["now"]))
        if subprocess.run(test, check=False).returncode == 0:
            missed.append(f"{fault['path']}: {fault['what']}")
        path.write_text(sound)
    return missed


# ---- faults by cosmic-ray
def mutants(name: str, module: dict[str, Any], test: list[str], end: float) -> tuple[Count, list[Survivor]]:
    """All faults of a module, as far as time allows."""
    started = time.monotonic()
    config, session = SCRATCH / f"{name}.toml", SCRATCH / f"{name}.sqlite"
    session.unlink(missing_ok=True)
    config.write_text(config_of(module, test))
    cosmic_ray("cosmic-ray", "init", config, session)
    cosmic_ray("cr-filter-operators", session, config)
    execute(config, session, module, end)
    work = [json.loads(line) for line in cosmic_ray("cosmic-ray", "dump", session).splitlines()]
    work = [(item["mutations"][0], result) for item, result in work if not (result and skipped(result))]
    ran = [(mutation, result) for mutation, result in work if result is not None]
    survivors = [survivor(*pair) for pair in ran if pair[1]["test_outcome"] == "survived"]
    seconds = time.monotonic() - started
    return Count(name, len(work), len(ran), len(ran) - len(survivors), 0, seconds), survivors


def config_of(module: dict[str, Any], test: list[str]) -> str:
    """Configuration of cosmic-ray as TOML; a string of JSON is one of TOML."""
    lines = [
        "[cosmic-ray]",
        f"module-path = {json.dumps(module['path'])}",
        f"test-command = {json.dumps(shlex.join(test))}",
        f"timeout = {20.0 * module['timeout'] + 60.0}",  # the fork ends itself before
        "excluded-modules = []",
        '[cosmic-ray.distributor]\nname = "local"',
        "[cosmic-ray.filters.operators-filter]",
        f"exclude-operators = {json.dumps([f'core/(?!({OPERATORS})$)'])}",
    ]
    return "\n".join(lines)


def cosmic_ray(tool: str, *given: object) -> str:
    """One of its commands, from the copy."""
    done = subprocess.run(
        [Path(sys.executable).parent / tool, *map(str, given)], cwd=TREE, check=True, capture_output=True, text=True
    )
    return done.stdout


def execute(config: Path, session: Path, module: dict[str, Any], end: float) -> None:
    """Run what is left of a session until `end`; the copy is sound again afterwards."""
    path = TREE / module["path"]
    sound = path.read_text()
    work = subprocess.Popen([Path(sys.executable).parent / "cosmic-ray", "exec", str(config), str(session)], cwd=TREE)
    with contextlib.suppress(subprocess.TimeoutExpired):
        try:
            work.wait(max(1.0, end - time.monotonic()))
        finally:
            work.kill()
            work.wait()
            path.write_text(sound)


def skipped(result: dict[str, Any]) -> bool:
    """Whether the filter left this fault out."""
    return bool(result["worker_outcome"] == "skipped")


def survivor(mutation: dict[str, Any], result: dict[str, Any]) -> Survivor:
    """The changed lines, from the difference that cosmic-ray keeps."""
    lines = result["diff"].splitlines()
    was = [line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---")]
    now = [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]
    return Survivor(mutation["module_path"], mutation["definition_name"] or "", " ".join(was), " ".join(now))


def explained() -> set[Survivor]:
    """The survivors of `explained.toml`."""
    reasons = tomllib.loads((HERE / "explained.toml").read_text())["explained"]
    return {Survivor(reason["path"], *fault) for reason in reasons for fault in reason["faults"]}


def report(table: list[Count]) -> None:
    """The table, one line a module."""
    print(f"{'module':14} {'faults':>7} {'ran':>6} {'noticed':>8} {'explained':>10} {'survived':>9} {'seconds':>8}")
    for c in table:
        left = c.ran - c.noticed - c.explained
        print(f"{c.name:14} {c.total:7} {c.ran:6} {c.noticed:8} {c.explained:10} {left:9} {c.seconds:8.0f}")


if __name__ == "__main__":
    sys.exit(main())
