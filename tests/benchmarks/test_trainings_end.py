"""How a benchmark that trains ends at Ctrl-C: with a sentence, and without a process."""

import multiprocessing
import time

import pytest

from benchmarks.trainings import pool, start


def test_a_sentence_and_an_exit_code(capsys):
    def main():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        start(main)
    assert ended.value.code == 130
    assert capsys.readouterr().err.splitlines() == [
        "interrupted; results that are kept are not run again"
    ]


@pytest.mark.timeout(60)
def test_processes_end_in_the_middle_of_what_they_do():
    def run():
        with pool(1) as processes:
            assert processes.submit(int, "7").result() == 7
            # Longer than this test may take, and one more that has not begun.
            processes.submit(time.sleep, 600), processes.submit(time.sleep, 600)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert not multiprocessing.active_children()
