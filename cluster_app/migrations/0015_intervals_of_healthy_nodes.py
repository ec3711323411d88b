from django.db import migrations
from django.utils import timezone


def begin(apps, schema_editor):
    """Nodes that are up now are observed from now on: a change of health would be the first to begin an interval."""
    nodes = apps.get_model("cluster_app", "Node").objects.filter(health__in=("healthy", "suspect"))
    NodeInterval = apps.get_model("cluster_app", "NodeInterval")
    now = timezone.now()
    NodeInterval.objects.bulk_create(
        [NodeInterval(node_id=pk, up=True, started_at=now) for pk in nodes.values_list("pk", flat=True)],
        batch_size=500,
    )


class Migration(migrations.Migration):

    dependencies = [
        ('cluster_app', '0014_capacity_types_and_intervals'),
    ]

    operations = [migrations.RunPython(begin, migrations.RunPython.noop)]
