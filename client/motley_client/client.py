"""The service in Python.

with Client("https://motley.example", token) as motley:
    job = motley.submit({"name": "resnet", "command": "torchrun train.py", "gpus": 4})
    job = motley.wait(job["id"])
"""

from motley_client.calls.account import AccountCalls
from motley_client.calls.cluster import ClusterCalls
from motley_client.calls.logs import LogCalls
from motley_client.calls.scheduling import SchedulingCalls


class Client(LogCalls, ClusterCalls, SchedulingCalls, AccountCalls):
    """Everything that the service can be asked, as the owner of the token; each call is one route, typed."""
