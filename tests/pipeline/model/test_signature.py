"""Signatures of models: made offline with a key of one's own, and broken by every change. 2 s."""

import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from flows.cli import main
from pipeline.model.parts import SIGNATURE, write_model_manifest
from pipeline.model.signature import sign
from pipeline.model.verify import verify
from svmcore.errors import InputError

pytest.importorskip("model_signing", exc_type=ImportError)
pytestmark = pytest.mark.filterwarnings("default")  # of the packages that it brings


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Files of two private keys and their public ones."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        key = ec.generate_private_key(ec.SECP256R1())
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        (folder / name).write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


@pytest.fixture
def signed(rows_run, keys, tmp_path):
    copy = Path(shutil.copytree(rows_run["run"], tmp_path / "signed"))
    assert sign(copy, keys / "ours") == str(copy / "model.zarr" / SIGNATURE)
    return copy


def test_sign__the_commands_agree(rows_run, keys, tmp_path, capsys):
    copy = shutil.copytree(rows_run["run"], tmp_path / "signed")
    assert main(["sign", str(copy), "--key", str(keys / "ours")]) == 0
    assert main(["verify", str(copy), "--key", str(keys / "ours.pub")]) == 0
    assert main(["verify", str(copy)]) == 0  # the signature is no stray part
    capsys.readouterr()
    assert main(["verify", str(copy), "--key", str(keys / "theirs.pub")]) == 1
    assert "signature: stored of the given key, recomputed" in capsys.readouterr().err


def fault(folder, key):
    report = verify(folder, key=str(key), trust=True)
    assert report["agrees"] == (not report["differences"])
    return [(part["part"], part["recomputed"]) for part in report["differences"]]


def test_verify__a_model_without_a_signature(rows_run, keys):
    assert fault(rows_run["run"], keys / "ours.pub") == [("signature", "there is none")]


def test_verify__a_forger_can_make_the_hashes_fit_and_not_the_signature(signed, keys):
    part = signed / "model.zarr" / "zarr.json"
    part.write_bytes(part.read_bytes() + b" ")
    write_model_manifest(signed / "model.zarr")
    (signed / "manifest.json").unlink()  # the run's own names the model's
    assert fault(signed, keys / "ours.pub") == [("signature", "made for other contents")]


def test_verify__a_changed_signature(signed, keys):
    path = signed / "model.zarr" / SIGNATURE
    path.write_bytes(path.read_bytes()[:-20])
    assert [name for name, _ in fault(signed, keys / "ours.pub")] == ["signature"]


def test_sign__a_damaged_model_is_not_signed(signed, keys):
    (signed / "model.zarr" / "coef" / "c" / "0" / "0").write_bytes(b"x")
    with pytest.raises(InputError, match="coef"):
        sign(signed, keys / "ours")


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_sign__a_key_that_is_none_is_refused_in_one_line(rows_run, tmp_path, content, capsys):
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    assert main(["sign", rows_run["run"], "--key", str(tmp_path / "key")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert str(tmp_path / "key") in told
