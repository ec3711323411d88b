"""Invalid specs: a field, a value that every interface refuses, and words of the answer that say how to correct it."""

from dataclasses import dataclass
from math import inf
from typing import Any
from uuid import uuid4

LEAST: dict[str, Any] = {"name": "net", "command": "true", "gpus": 1}
HUGE = 10**30
HALF = "\ud800"
"""Half of a surrogate pair: JSON and YAML can write it, and no text can hold it."""
NOBODYS_JOB = str(uuid4())
FOREIGN_JOB = "the job of another team"
"""Stands for its id."""


@dataclass(frozen=True)
class Bad:
    field: str
    value: Any
    says: str
    or_says: str = ""
    """Checked first by the interface itself, with an error message of its own."""

    def __str__(self) -> str:
        return f"{self.field}: {self.value!r}"[:60]


BAD = [
    Bad("name", "", "may not be blank", "field is required"),
    Bad("name", None, "may not be null", "field is required"),
    Bad("name", "x" * 101, "no more than 100 characters", "at most 100 characters"),
    Bad("name", "two\nlines", "printable characters only"),
    Bad("name", "\x1b[2Jcleared", "printable characters only"),
    Bad("name", "txt.\u202egnp", "printable characters only"),
    Bad("name", "nul\0", "printable characters only", "Null characters"),
    Bad("name", HALF, "printable characters only"),
    Bad("name", True, "A string is expected, not true or false"),
    Bad("name", {"a": 1}, "A string is expected, not an object"),
    Bad(
        "team",
        "nobody",
        "You are not a member of a team 'nobody'. Your teams: vision",
        "not one of the available choices",
    ),
    Bad("team", HALF, "Surrogate characters"),
    Bad("team", ["vision"], "A string is expected, not a list"),
    Bad("command", "", "Write a command line", "field is required"),
    Bad("command", [], "Write a command line", "No command:"),
    Bad("command", ["python", 5], "Write a command line"),
    Bad("command", "nul\0", "Write a command line", "Null characters"),
    Bad("command", ["python", HALF], "Write a command line"),
    Bad("workdir", "../../etc", "absolute path without '..'"),
    Bad("workdir", "/data/../../etc", "absolute path without '..'"),
    Bad("workdir", "/data\nx", "printable characters only"),
    Bad("volunteers", "some", "'some' is not one of none, trusted, any", "not one of the available choices"),
    Bad("env", {"A=B": "1"}, "letters, digits and '_'"),
    Bad("env", {"A": "nul\0"}, "Null characters"),
    Bad("env", {"LD PRELOAD": "x"}, "letters, digits and '_'"),
    Bad("env", {"MOTLEY_JOB_TOKEN": "x"}, "are reserved for Motley"),
    Bad("env", {"CUDA_VISIBLE_DEVICES": "7"}, "it says the GPUs of the job, which Motley chooses"),
    Bad("env", {"MASTER_ADDR": "foo"}, "MASTER_ADDR is reserved"),
    Bad("env", {"A": ["x"]}, "A string is expected, not a list"),
    Bad("env", {HALF: "x"}, "letters, digits and '_'"),
    Bad("env", {"A": "x" * 70_000}, "larger than 64 KiB"),
    Bad("env", "A=1", "An object is expected, not a string"),
    Bad("gpus", 0, "from 1 to 100,000"),
    Bad("gpus", -1, "from 1 to 100,000", "whole number of GPUs"),
    Bad("gpus", HUGE, "from 1 to 100,000"),
    Bad("gpus", inf, "whole number of GPUs"),
    Bad("gpus", 1.5, "whole number of GPUs"),
    Bad("gpus", "many", "whole number of GPUs"),
    Bad("gpus", [1], "whole number of GPUs"),
    Bad("gpus", {"min": 2, "max": 1}, "the minimum must not exceed the maximum"),
    Bad("gpus", 9, "No GPU type has room for 9 GPUs of one job; the most possible: 4 A100"),
    Bad("gpu_types", ["b200"], "No node has B200; there is A100"),
    Bad("gpu_types", "a100", "A list is expected, not a string"),
    Bad("gpu_types", ["a" * 41], "no more than 40 characters"),
    Bad("gpu_types", [HALF], "Surrogate characters"),
    Bad("gpu_types", ["a100"] * 101, "no more than 100"),
    Bad("gpu_memory", "16XB", "e.g. 16GiB"),
    Bad("gpu_memory", "-1GiB", "e.g. 16GiB"),
    Bad("gpu_memory", f"{HUGE}MiB", "at most 2,147,483,647"),
    Bad("gpu_memory", "9TiB", "the largest has 40960 MiB"),
    Bad("cpus_per_gpu", -1, "greater than or equal to 0"),
    Bad("cpus_per_gpu", HUGE, "less than or equal to 100000"),
    Bad("cpus_per_gpu", "four", "valid integer"),
    Bad("rates", {"a100": inf}, "steps/s from"),
    Bad("rates", {"a100": -1}, "steps/s from"),
    Bad("rates", {"a100": {"0": 1}}, "steps/s from"),
    Bad("rates", {HALF: 1}, "steps/s from"),
    Bad("rates", {f"kind-{n}": 1 for n in range(101)}, "at most 100 GPU types"),
    Bad("rates", {"a100": {str(n): 1 for n in range(1, 1002)}}, "up to 100 of"),
    Bad("batch_size", 64, "An object with the fields initial, max, max_per_gpu, min_per_gpu is expected"),
    Bad("batch_size", {"initial": 64}, "field is required"),
    Bad("batch_size", {"initial": 64, "max": 32, "max_per_gpu": 8}, "not be less than `initial`"),
    Bad("batch_size", {"initial": 8, "max": 8, "max_per_gpu": 8, "min_per_gpu": 8}, "at most half of max_per_gpu"),
    Bad("batch_size", {"initial": inf, "max": 8, "max_per_gpu": 8}, "valid integer"),
    Bad("batch_size", {"initial": 8, "max": HUGE, "max_per_gpu": 8}, "less than or equal to"),
    Bad("total_steps", 0, "greater than or equal to 1"),
    Bad("total_steps", HUGE, "less than or equal to"),
    Bad("total_steps", inf, "valid integer"),
    Bad("checkpoint", {"grace_seconds": 4000}, "less than or equal to 3600"),
    Bad("checkpoint", {"restore_seconds": inf}, "valid number"),
    Bad("checkpoint", {"grace": 1}, "The fields are: grace_seconds, restore_seconds"),
    Bad("preemptible", "perhaps", "valid boolean"),
    Bad("weight", 0, "a number from 0.000001 to 1,000,000"),
    Bad("weight", -1, "a number from 0.000001 to 1,000,000"),
    Bad("weight", 5, "a weight of at most 1"),
    Bad("weight", inf, "a number from 0.000001"),
    Bad("weight", HUGE, "a number from 0.000001 to 1,000,000"),
    Bad("deadline", "eventually", "e.g. 2030-12-31T18:00:00Z, or a time from now, e.g. now+2h"),
    Bad("deadline", "2001-01-01T00:00:00Z", "a time in the future"),
    Bad("time_limit", "soon", "e.g. 48h"),
    Bad("time_limit", -1, "e.g. 48h"),
    Bad("time_limit", 0, "Add the unit"),
    Bad("time_limit", inf, "e.g. 48h"),
    Bad("retries", -1, "greater than or equal to 0"),
    Bad("retries", HUGE, "less than or equal to 1000"),
    Bad("after", [{"job": "#x"}], "valid UUID", "No job named"),
    Bad("after", [{"job": NOBODYS_JOB}], "There is no job", "you may not see it"),
    Bad("after", [{"job": FOREIGN_JOB}], "There is no job", "you may not see it"),
    Bad("after", [{"job": NOBODYS_JOB, "on": HALF}], "success, end", "you may not see it"),
    Bad("after", [{"on": "end"}], "required"),
    Bad("after", ["nope"], "An object with the fields job, on is expected, not a string", "No job named"),
    Bad("after", [{"job": NOBODYS_JOB}] * 1001, "no more than 1000", "you may not see it"),
    Bad("array", {"start": 0, "end": 10_000}, "0-10000: an array has at most 10,000 tasks, these are 10,001"),
    Bad("array", "5-1", "5-1: the last index must not be less than the first"),
    Bad("array", "a-b", "is no list of indices"),
    Bad("array", "1,20000", "1,20000: the last index may be at most 9,999 above the first"),
    Bad("array", {"start": 5, "end": 1}, "5-1: the last index must not be less than the first"),
    Bad("array", {"start": 0, "end": HUGE}, "less than or equal to"),
    Bad("array", {"start": 0, "end": 1, "at_a_time": 0}, "greater than or equal to 1"),
    Bad("tags", {"a=b": "1"}, "without '='"),
    Bad("tags", {"x" * 101: ""}, "1 to 100 printable characters"),
    Bad("tags", {"a": "x" * 101}, "no more than 100 characters"),
    Bad("tags", {HALF: "x"}, "1 to 100 printable characters"),
    Bad("tags", {str(n): "" for n in range(101)}, "at most 100 tags"),
    Bad("gpu", 1, "Did you mean 'gpus'?"),
    Bad("id", NOBODYS_JOB, "The fields are: name, team"),
    Bad(f"field {HALF}", 1, "The fields are: name, team"),
]

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""A thousand million of them, if it were written out."""
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join([f'*{before}'] * 10)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD_YAML: dict[str, tuple[str, str]] = {
    "unfinished": ("name: [", "line"),
    "python objects": ("!!python/object/apply:os.system ['touch /tmp/x']", "python/object"),
    "python names": ("name: !!python/name:os.system", "python/name"),
    "bytes": ("name: !!binary aGVsbG8=", "binary"),
    "a set": ("tags: !!set {a, b}", "set"),
    "a time by its tag": ("name: !!timestamp 2026-01-01", "timestamp"),
    "many aliases of aliases": (BOMB, "aliases expand to more than"),
    "many merges of merges": (MERGES, "aliases expand to more than"),
    "an alias of what it is in": ("name: a\nenv: &e {A: *e}", "refers to a node that contains it"),
    "a field said twice": ("name: a\ngpus: 1\ngpus: 8", "the key 'gpus' appears twice"),
    "a list as a name": ("? [a]\n: 1", "unhashable"),
    "deep nesting": ("[" * 5_000, "nested"),
    "five thousand digits": ("gpus: " + "9" * 5_000, "digits"),
    "nul": ("name: a\0b", "not allowed"),
    "tabs": ("name: a\n\tgpus: 1", "cannot start any token"),
}
