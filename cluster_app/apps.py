from django.apps import AppConfig


class ClusterConfig(AppConfig):
    name = "cluster_app"
    verbose_name = "Cluster"
