"""What an exit code means, in words."""

import pytest

from insight_app.explain.attempt_explanations import explain_exit
from jobs_app.models import Attempt


@pytest.mark.parametrize(
    ("code", "last", "words"),
    [
        (137, "", "memory ran out"),
        (139, "", "fault in native code"),
        (143, "", "not by Motley"),
        (75, "", "more often than a job may"),
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "memory of a GPU ran out"),
        (1, "ModuleNotFoundError: No module named 'torch'", "module torch"),
        (1, "sh: 1: trian.py: not found", "was not found"),
    ],
)
def test_a_code_is_explained(code: int, last: str, words: str) -> None:
    assert words in explain_exit(Attempt(exit_code=code), ["before", last])


@pytest.mark.parametrize("code", [1, 2, 3, None])
def test_a_code_that_says_nothing_is_not_explained(code: int | None) -> None:
    assert explain_exit(Attempt(exit_code=code), ["ValueError: boom"]) == ""
