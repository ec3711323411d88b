from django.apps import AppConfig
from django.db.backends.signals import connection_created

from database.connections import compile_no_statements, read_times_fast


class ClusterConfig(AppConfig):
    name = "cluster_app"
    verbose_name = "Cluster"

    def ready(self) -> None:
        connection_created.connect(read_times_fast)
        connection_created.connect(compile_no_statements)
