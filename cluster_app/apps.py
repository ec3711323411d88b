from django.apps import AppConfig
from django.db.backends.signals import connection_created

from database.timestamps import read_times_fast


class ClusterConfig(AppConfig):
    name = "cluster_app"
    verbose_name = "Cluster"

    def ready(self) -> None:
        connection_created.connect(read_times_fast)
