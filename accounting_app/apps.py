from django.apps import AppConfig


class AccountingConfig(AppConfig):
    name = "accounting_app"
    verbose_name = "Accounting"
