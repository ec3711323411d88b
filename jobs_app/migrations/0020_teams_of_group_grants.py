"""Teams granted by groups are a relation: kept by name, they were no longer known once the team was renamed."""

from typing import Any

from django.db import migrations, models


def find_teams(apps: Any, _: Any) -> None:
    """A team that was renamed since the last login of the person is not found: its membership stays, as before."""
    teams = apps.get_model("jobs_app", "Team").objects
    for grant in apps.get_model("jobs_app", "GroupGrant").objects.all():
        grant.teams.set(teams.filter(name__in=grant.names))


def write_names(apps: Any, _: Any) -> None:
    for grant in apps.get_model("jobs_app", "GroupGrant").objects.all():
        grant.names = list(grant.teams.values_list("name", flat=True))
        grant.save()


class Migration(migrations.Migration):

    dependencies = [
        ('jobs_app', '0019_stages_of_a_start'),
    ]

    operations = [
        migrations.RenameField(
            model_name='groupgrant',
            old_name='teams',
            new_name='names',
        ),
        migrations.AddField(
            model_name='groupgrant',
            name='teams',
            field=models.ManyToManyField(related_name='+', to='jobs_app.team'),
        ),
        migrations.RunPython(find_teams, write_names),
        migrations.RemoveField(
            model_name='groupgrant',
            name='names',
        ),
    ]
