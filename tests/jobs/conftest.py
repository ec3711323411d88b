from tests.one_node import ada, cluster, launched, running

__all__ = ["ada", "cluster", "launched", "running"]
