"""A campaign's directory: safe as records come, readable afterwards, never written over."""

import json

import pytest

from aiops.errors import ConfigError
from aiops.lab.comparison import compare
from aiops.lab.result import Folder, command_line, read_manifest, read_result
from tests.lab.kit import record, small
from tests.lab.test_comparison import manifest


def test_records_are_there_as_they_come_and_in_order_at_the_end(tmp_path):
    there = manifest(small())
    first, second = record("slow", 0, 8.0), record("fast", 0, 2.0)
    with Folder(tmp_path / "a" / "b", there) as folder:
        folder.add(second)
        assert read_result(folder.path).records == (second,)
        folder.add(first)
        summary = compare(there.setting, {"slow": [first], "fast": [second]}, "slow")
        folder.finish([first, second], summary)
    found = read_result(folder.path)
    assert found.records == (first, second)
    assert found.manifest == there == read_manifest(folder.path / "manifest.json")
    assert read_result(folder.path / "records.jsonl") == found
    told = json.loads((folder.path / "summary.json").read_text())
    assert [method["label"] for method in told["methods"]] == ["slow", "fast"]
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "manifest.json",
        "records.jsonl",
        "summary.json",
    ]


def test_results_are_not_written_over(tmp_path):
    with Folder(tmp_path, manifest(small())) as folder:
        folder.add(record("slow", 0, 8.0))
    with pytest.raises(ConfigError, match=r"holds results already \(records.jsonl\)"):
        Folder(tmp_path, manifest(small(name="other")))
    assert read_result(tmp_path).manifest.scenario.name == "small"


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write results to .*file/a: Not a directory"):
        Folder(tmp_path / "file" / "a", manifest(small()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read .*: No such file"),
        ("", "has no records"),
        ("{}\n", "line 1 is no record of aiops lab: .*missing required field `scenario`"),
        ("seed", "line 1 is no record of aiops lab"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "records.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_result(tmp_path)


def test_what_is_no_manifest_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        read_manifest(tmp_path / "manifest.json")
    (tmp_path / "manifest.json").write_text('{"lab": "virtual"}')
    with pytest.raises(ConfigError, match=r"is no manifest of aiops lab run: .*`scenario`"):
        read_manifest(tmp_path / "manifest.json")


def test_a_command_line_is_one_that_a_shell_takes():
    assert command_line(["lab", "run", "a b.toml"]) == "aiops lab run 'a b.toml'"
