"""Tests against other schedulers' results run where the data is, and are never dropped unseen where it should be."""

from pathlib import Path

import pytest

from tests import reference


@pytest.mark.parametrize(
    ("named", "outcome"),
    [(False, pytest.skip.Exception), (True, pytest.fail.Exception)],
    ids=["a bare clone skips", "a folder that was named fails"],
)
def test_reference_data_that_is_missing(named, outcome, monkeypatch, tmp_path):
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    monkeypatch.setattr(reference, "MUST_BE_THERE", named)
    with pytest.raises(outcome, match=r"set MOTLEY_REFERENCE, see 'Reference data' in CONTRIBUTING\.md"):
        reference.reference("gavel")
    assert reference.may_be_read("gavel") is named


def test_the_check_before_landing_names_reference_data_beside_the_checkout():
    script = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    assert "[ -d ../shared/reference ]" in script
    assert "export MOTLEY_REFERENCE" in script
