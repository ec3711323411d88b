from django.apps import AppConfig


class ConnectionsConfig(AppConfig):
    name = "connections_app"
    verbose_name = "Machines"
