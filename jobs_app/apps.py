from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs_app"
    verbose_name = "Jobs"
