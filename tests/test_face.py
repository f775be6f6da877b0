"""What `import aiops` gives, and what it costs."""

import subprocess
import sys

import pytest

import aiops


def test_every_name_of_the_face_is_there_and_sorted_by_topic_at_most_thirty():
    assert len(aiops.__all__) <= 31
    for name in aiops.__all__:
        assert getattr(aiops, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        aiops.nothing  # noqa: B018


def test_importing_aiops_imports_no_torch_and_nothing_else_that_is_heavy():
    heavy = ["torch", "numpy", "asyncio", "ssl", "matplotlib", "rich", "click", "safetensors"]
    code = f"import aiops, sys; print([name for name in {heavy!r} if name in sys.modules])"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    assert told.stdout.strip() == "[]"


def test_a_worker_does_not_load_the_servers_rooms():
    code = (
        "import aiops, sys; aiops.connect; "
        "print([name for name in sys.modules if name.startswith('aiops.server')])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    assert told.stdout.strip() == "[]"
