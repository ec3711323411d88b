from django.apps import AppConfig


class PagesConfig(AppConfig):
    name = "web.pages"
    verbose_name = "Pages"
