"""Python client of the Motley REST API: one method per route, typed.

with Client("https://motley.example", token) as motley:
    job = motley.submit({"name": "resnet", "command": "torchrun train.py", "gpus": 4})
    job = motley.wait(job["id"])
"""

from motley_client.routes.cluster import ClusterRoutes
from motley_client.routes.code import CodeRoutes
from motley_client.routes.insight import InsightRoutes
from motley_client.routes.lab import LabRoutes
from motley_client.routes.logs import LogRoutes
from motley_client.routes.policies import PolicyRoutes
from motley_client.routes.recipes import RecipeRoutes
from motley_client.routes.recurring_jobs import RecurringJobRoutes
from motley_client.routes.sweeps import SweepRoutes
from motley_client.routes.teams import TeamRoutes


class Client(
    CodeRoutes,
    LogRoutes,
    RecurringJobRoutes,
    SweepRoutes,
    RecipeRoutes,
    ClusterRoutes,
    TeamRoutes,
    PolicyRoutes,
    LabRoutes,
    InsightRoutes,
):
    """Connection to a Motley service with a method for every route. All errors are `MotleyError`s.

    Submissions carry an idempotency key, so that repeating one creates no second job. Methods marked
    "Administrators only" raise `AuthError` for everybody else.
    """
