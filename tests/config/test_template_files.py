"""Templates are read as other code is: indented (`djhtml` in `make check`), in lines that fit a screen."""

from django.conf import settings

LONGEST_LINE = 160


def test_no_line_of_a_template_is_longer_than_a_screen():
    lines = {
        f"{path.relative_to(settings.BASE_DIR)}:{number}": len(line)
        for path in sorted((settings.BASE_DIR / "templates").rglob("*.html"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
    }
    assert lines
    assert not {place: length for place, length in lines.items() if length > LONGEST_LINE}
