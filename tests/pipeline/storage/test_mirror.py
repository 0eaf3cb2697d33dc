"""Answers on their way to other machines: those that are asked for arrive, finished or under way, and nothing else."""

import io
import json
import zipfile

import pytest

from pipeline.storage.bucket import Bucket
from pipeline.storage.mirror import Mirror


@pytest.fixture
def bucket(s3, request):
    return Bucket(f"{s3}/{request.node.name}")


def write(folder, **files):
    (folder / "problems").mkdir(parents=True)
    for name, text in files.items():
        (folder / "problems" / name.replace("_under_way", ".under-way")).write_text(text)


def files(folder):
    return {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*") if file.is_file()}


def test_answers__reach_another_machine_with_what_is_under_way(bucket, tmp_path):
    write(tmp_path / "here", a="one", b_under_way="half", d="not asked for")
    here = Mirror(bucket, tmp_path / "here")
    for name in ("a", "b.under-way", "b.under-way", "gone.under-way", "d"):
        here.push(f"problems/{name}")
    here.settle()
    there = Mirror(bucket, tmp_path / "there")
    there.sync(["problems/a", "problems/b", "problems/c"])
    assert files(tmp_path / "there") == {"problems/a": "one", "problems/b.under-way": "half"}


def test_answers__only_one_machine_has_are_sent_even_where_they_are_under_way_elsewhere(bucket, tmp_path):
    write(tmp_path / "slow", a_under_way="half")
    write(tmp_path / "fast", a="whole")
    slow, fast = (Mirror(bucket, tmp_path / name) for name in ("slow", "fast"))
    slow.push("problems/a.under-way")
    slow.settle()
    fast.sync(["problems/a"])
    fast.settle()
    third = Mirror(bucket, tmp_path / "third")
    third.sync(["problems/a"])
    assert files(tmp_path / "third") == {"problems/a": "whole"}


def test_answers__of_names_that_nobody_asked_for_are_written_nowhere(bucket, tmp_path):
    name, data = "problems/../../outside", io.BytesIO()
    with zipfile.ZipFile(data, "w") as batch:
        batch.writestr(name, "x")
        batch.writestr("problems/a", "one")
    bucket.put(".cache/problems/batch.zip", data.getvalue())
    bucket.put(".cache/problems/batch.json", json.dumps([name, "problems/a"]).encode())
    Mirror(bucket, tmp_path / "there").sync(["problems/a"])
    assert files(tmp_path) == {"there/problems/a": "one"}
