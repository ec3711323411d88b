"""Static files are collected again when, and only when, their sources have changed."""

import os
from pathlib import Path

import pytest
from pytest_django import Settings

from operations.prepare_host import collect_static_files


@pytest.fixture
def source(settings: Settings, tmp_path: Path) -> Path:
    """A folder with one file, which is all that there is to collect."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "page.css").write_text("a { color: red }")
    settings.STATIC_ROOT, settings.STATICFILES_DIRS = tmp_path / "static", [folder]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    return folder


def collected(source: Path) -> str:
    collect_static_files()
    return (source.parent / "static" / "page.css").read_text()


def test_a_changed_file_is_collected_again(source: Path) -> None:
    assert collected(source) == "a { color: red }"
    (source / "page.css").write_text("a { color: black }")
    os.utime(source / "page.css", (2e9, 2e9))  # Django compares whole seconds
    assert collected(source) == "a { color: black }"


def test_files_that_are_there_are_left_alone(source: Path) -> None:
    collect_static_files()
    left_alone = source.parent / "static" / "page.css"
    left_alone.write_text("collected before")
    assert collected(source) == "collected before"
