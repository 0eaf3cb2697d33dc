"""Compiled files of another version of the package: gone before numba reads them."""

from svmcore.runtime.compiled import forget_moved


def package(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def compiled(folder):
    return sorted(path.name for path in folder.rglob("*.nbi"))


def test_forget_moved__keeps_what_was_compiled_from_the_same_files(tmp_path):
    root = package(tmp_path, "a.py", "room/b.py")
    forget_moved(root)
    package(root, "__pycache__/a.nbi", "room/__pycache__/b.nbi")
    forget_moved(root)
    assert compiled(root) == ["a.nbi", "b.nbi"]


def test_forget_moved__deletes_it_when_a_file_has_moved(tmp_path):
    root = package(tmp_path, "a.py", "room/b.py")
    forget_moved(root)
    package(root, "__pycache__/a.nbi", "room/__pycache__/b.nbi")
    (root / "room" / "b.py").rename(root / "b.py")
    forget_moved(root)
    assert compiled(root) == []
    assert len(list(root.glob("__pycache__/modules.*"))) == 1


def test_forget_moved__leaves_a_package_that_cannot_be_written_to(tmp_path):
    root = package(tmp_path, "a.py")
    (root / "__pycache__").touch()  # no folder can be made here
    forget_moved(root)
