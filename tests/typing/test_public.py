"""The types that users see, checked by mypy as they would."""

import pathlib

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.mark.timeout(120)
def test_mypy_agrees_with_what_the_public_api_promises():
    api = pytest.importorskip("mypy.api")
    pytest.importorskip("torch")
    config = HERE.parents[1] / "pyproject.toml"
    out, err, code = api.run(
        ["--config-file", str(config), "--warn-unused-ignores", str(HERE / "public.py")]
    )
    assert code == 0, out + err
