"""Words of Motley that pages explain where they stand first, as in `docs/glossary.md`."""

TERMS: dict[str, str] = {
    "attempt": "one try at running a job, on certain GPUs",
    "gang": "the GPUs of one attempt, which all start together",
    "workload": "a group of jobs with the same rates: a measurement of one counts for all",
    "round": "one decision for the whole cluster: read, decide, commit",
    "reference GPU-hour": "work of an hour on the cluster's average GPU; an hour on a GPU of twice the speed for the "
    "job is two",
    "shadow price": "how much one more GPU of the type would improve the objective of a round",
    "rho": "finish-time fairness: time from submission to end, divided by that on the job's own part of the cluster",
    "JCT": "job completion time: from submission to end",
    "completed rate": "a rate on a GPU type or gang where the workload was not measured, completed from the rates of "
    "other workloads there",
    "p99": "the value that 99 of 100 jobs do not exceed",
}
