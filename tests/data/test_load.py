from __future__ import annotations

import gzip
import hashlib
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from aiops import data
from aiops.data import fashion
from aiops.errors import ConfigError


def idx_bytes(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim))
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(np.uint8).tobytes()
    )


@pytest.fixture
def tiny(monkeypatch, tmp_path) -> dict[str, bytes]:
    """Stand-ins for the four files: 6 training and 2 test images, with digests of their own."""
    rng = np.random.default_rng(3)
    contents = {}
    for part, n in (("train", 6), ("t10k", 2)):
        images = rng.integers(0, 256, (n, 28, 28))
        images[0, 0, :2] = 0, 255
        contents[f"{part}-images-idx3-ubyte"] = idx_bytes(images)
        contents[f"{part}-labels-idx1-ubyte"] = idx_bytes(np.arange(n))
    monkeypatch.setattr(
        fashion, "DIGESTS", {name: hashlib.sha256(c).hexdigest() for name, c in contents.items()}
    )
    monkeypatch.setattr(fashion, "SYSTEM_DIRECTORY", tmp_path / "system")
    return contents


def lay(directory: Path, contents: dict[str, bytes], *, compress: bool = True) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if compress:
            (directory / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (directory / name).write_bytes(content)
    return directory


def test_digits_are_always_here_and_ready_for_training():
    digits = data.load("digits")
    assert digits.x_train.shape == (1442, 8, 8)
    assert digits.x_test.shape == (355, 8, 8)
    assert digits.n_classes == 10
    for x, y in ((digits.x_train, digits.y_train), (digits.x_test, digits.y_test)):
        assert x.dtype == np.float32
        assert x.flags.c_contiguous
        assert x.flags.writeable
        assert (x.min(), x.max()) == (0.0, 1.0)
        assert y.dtype == np.int64
        assert len(x) == len(y)


def test_the_digits_test_split_holds_every_class_in_equal_share():
    counts = np.bincount(data.load("digits").y_test, minlength=10)
    assert counts.min() >= 34
    assert counts.max() <= 36


def test_the_digits_file_is_the_published_one():
    content = (Path(data.__file__).parent / "digits.csv.gz").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert digest == "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"


@pytest.mark.parametrize("compress", [True, False], ids=["gz", "plain"])
@pytest.mark.parametrize(
    "layout", ["system", "cache/fashion-mnist", "cache/FashionMNIST/raw"], ids=str
)
def test_fashion_mnist_is_found_wherever_a_package_puts_it(tiny, tmp_path, layout, compress):
    lay(tmp_path / layout, tiny, compress=compress)
    loaded = data.load("fashion-mnist", cache=tmp_path / "cache")
    assert loaded.x_train.shape == (6, 28, 28)
    assert loaded.x_train.dtype == np.float32
    assert loaded.x_train[0, 0, :2].tolist() == [0.0, 1.0]
    assert loaded.y_train.tolist() == [0, 1, 2, 3, 4, 5]
    assert loaded.y_test.tolist() == [0, 1]
    assert data.is_available("fashion-mnist", cache=tmp_path / "cache")


@pytest.mark.parametrize("below", ["", "fashion-mnist", "FashionMNIST/raw"])
def test_the_users_own_directory_is_looked_at_first(tiny, tmp_path, below):
    mine = lay(tmp_path / "mine" / below, tiny)
    lay(tmp_path / "system", tiny)
    lay(tmp_path / "cache" / "fashion-mnist", tiny)
    assert fashion.find(root=tmp_path / "mine", cache=tmp_path / "cache") == mine
    shutil.rmtree(tmp_path / "mine")
    found = fashion.find(root=tmp_path / "mine", cache=tmp_path / "cache")
    assert found == tmp_path / "system"


def test_a_directory_with_a_file_missing_is_passed_over(tiny, tmp_path):
    half = lay(tmp_path / "system", tiny)
    (half / "t10k-labels-idx1-ubyte.gz").unlink()
    whole = lay(tmp_path / "cache" / "fashion-mnist", tiny)
    assert fashion.find(root=None, cache=tmp_path / "cache") == whole


def test_a_missing_data_set_names_the_command_that_installs_it(tiny, tmp_path):
    assert not data.is_available("fashion-mnist", cache=tmp_path)
    with pytest.raises(ConfigError, match="apt-get install dataset-fashion-mnist") as caught:
        data.load("fashion-mnist", cache=tmp_path)
    assert str(tmp_path / "system") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_with_other_bytes_is_refused_by_name(tiny, tmp_path):
    name = "train-labels-idx1-ubyte"
    tiny[name] = tiny[name][:-1] + b"\x09"
    lay(tmp_path / "system", tiny)
    with pytest.raises(ConfigError, match=rf"{name}\.gz is not the published file"):
        data.load("fashion-mnist", cache=tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda packed: packed[: len(packed) // 2], id="cut short"),
        pytest.param(lambda packed: b"<html>" + packed, id="not gzip"),
        pytest.param(
            lambda packed: packed[:30] + bytes(byte ^ 0xFF for byte in packed[30:]), id="scrambled"
        ),
    ],
)
def test_a_damaged_archive_is_refused_by_name(tiny, tmp_path, damage):
    lay(tmp_path / "system", tiny)
    path = tmp_path / "system" / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"cannot read .*train-images-idx3-ubyte\.gz"):
        data.load("fashion-mnist", cache=tmp_path)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="'cifar-10', there are fashion-mnist, digits"):
        data.load("cifar-10")
    with pytest.raises(ConfigError, match="'cifar-10'"):
        data.is_available("cifar-10")


def test_the_cache_is_under_home_unless_the_caller_says_otherwise(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.default_cache() == tmp_path / ".cache" / "aiops" / "datasets"


def test_the_installed_fashion_mnist_has_the_published_statistics():
    if not data.is_available("fashion-mnist"):
        pytest.skip(f"fashion-mnist is not on this machine: {fashion.APT_COMMAND}")
    loaded = data.load("fashion-mnist")
    assert loaded.x_train.shape == (60_000, 28, 28)
    assert np.bincount(loaded.y_train).tolist() == [6_000] * 10
    assert np.bincount(loaded.y_test).tolist() == [1_000] * 10
    assert loaded.x_train.mean() == pytest.approx(0.2860, abs=1e-4)
    assert loaded.x_train.std() == pytest.approx(0.3530, abs=1e-4)
