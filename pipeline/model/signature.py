"""Signatures of models with keys of one's own, offline: the `model-signing` package of the OpenSSF, an extra (`sign`).

A manifest tells a damaged model, a signature tells a forged one. It stands beside the manifest and covers it and every
part; `model_signing verify key` reads it too.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config.values import is_url
from pipeline.model.parts import OWNER, SIGNATURE, check_model, model_folder
from pipeline.storage.bucket import Bucket, address_of
from svmcore.errors import InputError

__all__ = ["sign", "signature_fault"]


def sign(path: str | Path, key: str | Path) -> str:
    """Sign the model at a path or URL with a private key (elliptic curve, PEM); returns the signature's address.

    Raises
    ------
    InputError
        No model there, one that was changed, a key that cannot be read, or no `model-signing` installed.
    """
    with _errors_of_keys(key):
        from model_signing import signing

        folder = model_folder(path)
        check_model(folder)
        signer = signing.Config().use_elliptic_key_signer(private_key=Path(key))
        signer.set_hashing_config(_hashing()).sign(folder, folder / SIGNATURE)
    address = address_of(folder)
    if is_url(address):
        Bucket(address).put(SIGNATURE, folder / SIGNATURE)
    return f"{address}/{SIGNATURE}"


def signature_fault(folder: Path, key: str | Path) -> str:
    """Why the holder of the private key that belongs to the public `key` did not sign this model; "" if they did."""
    if not (folder / SIGNATURE).is_file():
        return "there is none"
    with _errors_of_keys(key):
        from cryptography.exceptions import InvalidSignature
        from model_signing import verifying

        verifier = verifying.Config().use_elliptic_key_verifier(public_key=Path(key)).set_hashing_config(_hashing())
    try:
        verifier.verify(folder, folder / SIGNATURE)
    except InvalidSignature:
        return "made with another key"
    except ValueError:
        return "made for other contents"
    except Exception as error:  # the file is a stranger's, and the package names no errors of its own
        return f"does not hold ({' '.join(str(error).split())[:300] or type(error).__name__})"
    return ""


def _hashing() -> Any:
    from model_signing import hashing

    return hashing.Config().set_ignored_paths(paths=[OWNER, SIGNATURE], ignore_git_paths=False)


@contextlib.contextmanager
def _errors_of_keys(key: str | Path) -> Iterator[None]:
    """Say in one line what is wrong with a key, or that the package is not there."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"signatures need the package model-signing ({error}); pip install 'marginflow[sign]'"
        ) from None
    except OSError as error:
        raise InputError(f"--key {key}: cannot be read ({error.strerror}); give a PEM file") from None
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"--key {key}: no key of an elliptic curve ({reason}); make one with "
            "`openssl ecparam -name prime256v1 -genkey -noout -out key.pem`"
        ) from None
