from django.apps import AppConfig


class InsightConfig(AppConfig):
    name = "insight_app"
    verbose_name = "Forecasts and policy lab"
