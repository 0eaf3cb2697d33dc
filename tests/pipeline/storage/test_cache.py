import os
import time

from pipeline import run
from pipeline.storage.cache import claim, discard, evict, using


def entry(root, kind, name, n_bytes, age):
    folder = root / kind / name
    folder.mkdir(parents=True)
    (folder / "part").write_bytes(b"x" * n_bytes)
    os.utime(folder, (time.time() - age,) * 2)


def single(root, name, n_bytes, age):
    """An answer: a file, and perhaps others beside it."""
    (root / "problems").mkdir(exist_ok=True)
    (root / "problems" / name).write_bytes(b"x" * n_bytes)
    os.utime(root / "problems" / name, (time.time() - age,) * 2)


def left(root):
    return sorted(f"{folder.parent.name}/{folder.name}" for folder in root.glob("[!.]*/*"))


def test_evict__the_oldest_go_until_the_rest_fits(tmp_path):
    for kind, name, age in (("data", "a", 9e4), ("gram", "b", 7e4), ("problems", "c", 8e4), ("gram", "d", 6e4)):
        entry(tmp_path, kind, name, 8192, age)
    assert evict(tmp_path, 2 * 8192) == 2
    assert left(tmp_path) == ["gram/b", "gram/d"]
    assert evict(tmp_path, 2 * 8192) == 0


def test_evict__what_is_in_use_stays_however_old_and_goes_when_its_user_has_ended(tmp_path):
    entry(tmp_path, "gram", "used", 8192, 9e4)
    entry(tmp_path, "gram", "unused", 8192, 10)
    with using(tmp_path):
        claim(tmp_path, ["gram/used", "problems/comes-later"])
        assert evict(tmp_path, 0) == 1
        assert left(tmp_path) == ["gram/used"]
    assert evict(tmp_path, 0) == 1
    assert left(tmp_path) == []


def test_evict__a_file_goes_with_what_lies_beside_it(tmp_path):
    for name, age in (("a", 9e4), ("a.under-way", 10), ("b", 8e4), ("b.limit-0.5", 9e4), ("c", 7e4)):
        single(tmp_path, name, 8192, age)
    assert evict(tmp_path, 3 * 8192) == 1  # b: what lies beside a was written just now
    assert left(tmp_path) == ["problems/a", "problems/a.under-way", "problems/c"]
    with using(tmp_path):
        claim(tmp_path, ["problems/a"])
        assert evict(tmp_path, 0) == 1
        assert left(tmp_path) == ["problems/a", "problems/a.under-way"]
    assert evict(tmp_path, 0) == 1
    assert left(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [".leases", "problems"]


def test_evict__what_killed_writers_left_goes(tmp_path):
    single(tmp_path, "a", 10, 10)
    single(tmp_path, ".b.partial-of-nobody-here", 10, 1e5)
    assert evict(tmp_path, 8192) == 0
    assert [path.name for path in (tmp_path / "problems").iterdir()] == ["a"]


def test_discard__removes_what_only_this_run_uses(tmp_path):
    entry(tmp_path, "gram", "k", 8192, 10)
    with using(tmp_path):
        claim(tmp_path, ["gram/k"])
        assert discard(tmp_path, tmp_path / "gram" / "k")
    assert left(tmp_path) == []


def test_evict__a_run_touches_what_it_finds_and_clears_what_it_does_not(rows_config, tmp_path):
    first = run(rows_config, store=tmp_path)
    for folder in (tmp_path / ".cache").glob("[!.]*/*"):
        os.utime(folder, (0, 0))
    again = run(rows_config, ["cache.disk=1MiB", "cluster.kind=inline"], store=tmp_path)
    assert again["problems"]["reused"] == again["problems"]["total"] == first["problems"]["total"]
    used = left(tmp_path / ".cache")
    assert len(used) == 5  # dataset, kernel matrix, three answers
    idle = {name for name in used if (tmp_path / ".cache" / name).stat().st_mtime == 0}
    assert {name.split("/")[0] for name in idle} == {"gram"}  # touched are the others: answers need no kernel again
    run(rows_config, ["C=3"], store=tmp_path)
    for folder in (tmp_path / ".cache").glob("[!.]*/*"):
        if f"{folder.parent.name}/{folder.name}" in used:
            os.utime(folder, (0, 0))
    other = rows_config | {"data": rows_config["data"] | {"scale": "minmax"}}
    size = sum(file.stat().st_blocks * 512 for file in (tmp_path / ".cache").rglob("*") if file.is_file())
    run(other, [f"cache.disk={size // 1024}KiB"], store=tmp_path)
    assert not set(used) & set(left(tmp_path / ".cache"))
    assert run(other, store=tmp_path)["problems"]["reused"] == 3
