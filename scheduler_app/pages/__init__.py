"""Views of the pages."""
