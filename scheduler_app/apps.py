from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    name = "scheduler_app"
    verbose_name = "Scheduler"
