from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "audit_app"
    verbose_name = "Audit"

    def ready(self) -> None:
        from audit_app import logins  # noqa: F401, PLC0415 - connects signals; needs the models
