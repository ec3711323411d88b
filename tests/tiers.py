"""Tiers of the test suite: which tests `make test-fast`, `make test` and `make test-all` run, and on which database.

`make test` proves each promise once, on real parts, within ten minutes. `make test-all` adds the tier `deep`: the same
on the other database, under other isolations and policies, with more examples, and what needs PyTorch, Podman or a
kernel of its own (docs/decisions/0095).
"""

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent


class Tier(StrEnum):
    FAST = "fast"
    """Quick tests, on SQLite."""
    TEST = "test"
    """`make test`."""
    DEEP = "deep"
    """What `make test` leaves out of `make test-all`."""
    ALL = "all"
    """Every test, on the database at hand: of a run by hand."""


SLOW = (
    "chaos/test_chaos",
    "security",
    "service",
    "stack",
    "client/test_completion",
    "client/test_installed_alone",
    "client/test_sample_job",
    "client/test_simulate_command",
    "client/test_terminal_output",
    "client/test_training_helper",
    "cluster/test_nodes",
    "engines/test_engine",
    "engines/test_containers",
    "engines/test_local",
    "engines/test_own_kernel",
    "engines/test_slurm_engine",
    "jobs/test_commands",
    "pages/test_pages_in_a_browser",
    "rest/test_content_security_policy",
    "rest/test_rest_logs",
    "rest/test_schema_fuzz",
    "scheduler/test_admin_pages",
    "connections/test_agents",
    "scheduler/test_batch_tuning",
    "scheduler/test_cpu_memory",
    "scheduler/test_elastic",
    "connections/test_engine_on_slurm",
    "connections/test_engines",
    "scheduler/test_every_policy_live",
    "accounting/test_gpu_watch",
    "scheduler/test_lifecycle_machine",
    "scheduler/test_node_sleep",
    "scheduler/test_placement.py",
    "scheduler/test_preemption",
    "scheduler/test_recovery",
    "scheduler/test_slurm",
    "operations/test_steady_state",
    "connections/test_storage",
    "scheduler/test_training",
    "simulation/test_clock",
    "simulation/test_comparison",
    "simulation/test_gavel",
    "simulation/test_generator",
    "simulation/test_recorded_runs",
    "simulation/test_sia_runs",
    "simulation/test_space_sharing",
    "simulation/test_starvation",
    "simulation/test_timeline",
    "training",
)
"""Modules, or folders of them, that `make test-fast` leaves out (marker `slow`); `make test` starts with them.

Those of their tests that use the database run on PostgreSQL alone: what they wait for are processes (decision 87)."""

THOROUGH = (
    "engines/test_containers",
    "engines/test_own_kernel",
    "engines/test_slurm_accounting",
    "security/test_long_texts",
    "connections/test_engine_on_slurm",
    "scheduler/test_training",
    "service/test_contention",
    "service/test_node_sleep",
    "service/test_power_loss",
    "service/test_real_gpus",
    "service/test_slurm_demo",
    "stack/test_stack_backup",
    "stack/test_stack_durations",
    "stack/test_systemd_units",
    "training/test_ddp",
    "training/test_frameworks",
    "training/test_tracking",
)
"""Modules that `make test-all` alone runs (marker `thorough`); the others do not import them."""

ONCE = {
    "chaos/test_chaos.py": (
        "test_a_ledger_shows_steps_that_are_missing_or_done_by_two_at_once",
        "test_events_show_what_the_table_of_states_does_not_allow",
    ),
    "engines/test_slurm_engine.py": (
        "test_a_job_that_slurm_starts_twice_runs_once",
        "test_a_node_that_motley_drains_is_drained_in_slurm_until_it_is_resumed",
        "test_a_rank_whose_srun_was_killed_ends_the_attempt_on_all_nodes",
        "test_the_job_sees_the_devices_that_slurm_chose",
    ),
    "scheduler/test_slurm.py": (
        "test_a_controller_that_is_away_costs_no_job",
        "test_a_job_that_an_administrator_cancels_in_slurm_is_queued_again_and_goes_on",
    ),
    "service/test_agents.py": (
        "test_a_job_whose_agent_stands_still_stops_before_it_may_start_elsewhere",
        "test_a_volunteer_that_leaves_with_notice_loses_no_step",
    ),
    "service/test_backup.py": (
        "test_a_changed_file_is_refused",
        "test_a_service_goes_back_to_its_backup_and_no_job_is_run_twice",
    ),
    "service/test_browser.py": ("test_a_job_submitted_by_the_form_runs_to_its_end",),
    "service/test_command_with_jobs.py": (
        "test_following_ends_with_the_job_and_says_how_it_ended",
        "test_submit_and_wait_exits_as_the_job_does",
    ),
    "service/test_kills.py": (
        "test_a_cancel_is_obeyed_while_a_round_is_being_decided",
        "test_a_job_whose_supervisor_is_killed_runs_again_to_its_end",
        "test_a_killed_service_finds_its_running_jobs_again",
        "test_jobs_finish_once_though_the_scheduler_is_killed_again_and_again",
    ),
    "service/test_listeners.py": ("test_no_job_takes_the_port_while_a_part_is_restarted",),
    "service/test_long_requests.py": (
        "test_a_stream_ends_when_its_token_is_revoked",
        "test_pages_and_probes_answer_beside_more_of_them_than_there_are_threads",
    ),
    "service/test_preemption.py": ("test_a_preempted_job_resumes_from_its_checkpoint_and_repeats_no_step",),
    "service/test_previous_client.py": ("test_the_client_of_before_submits_follows_and_ends_jobs",),
    "service/test_quick_start.py": (
        "test_a_job_of_a_root_service_cannot_read_its_secrets",
        "test_every_round_replays_to_the_same_decision",
        "test_logins_are_printed_and_kept_private",
        "test_sample_jobs_run_on_several_gpu_types",
    ),
    "service/test_secrets.py": ("test_secrets_are_where_they_must_be_and_nowhere_else",),
    "service/test_service_logs.py": ("test_lines_say_what_they_are_about_and_hold_no_secret",),
    "service/test_slow_clients.py": (
        "test_a_client_past_the_proxy_cannot_choose_its_address",
        "test_others_are_answered_meanwhile",
    ),
    "service/test_sessions.py": (
        "test_a_command_runs_in_the_job_and_its_exit_code_is_ours",
        "test_a_session_ends_with_its_job",
    ),
    "stack/test_concurrent_writes.py": (
        "test_a_cancel_is_never_lost",
        "test_an_attempt_begins_once",
        "test_of_several_claims_of_a_gpu_one_succeeds",
    ),
    "stack/test_stack_kills.py": (
        "test_all_go_on_by_themselves_after_the_database_was_restarted",
        "test_of_two_workers_one_schedules_and_the_other_takes_over_when_it_is_killed",
        "test_rounds_resume_within_two_periods_after_redis_was_killed",
    ),
    "stack/test_stack_submission.py": ("test_a_job_submitted_over_rest_runs_to_its_end",),
}
"""Of these modules `make test` runs only the tests named here, each the one of a promise; a new test is thorough."""

ON_POSTGRESQL = (
    *("accounting", "cluster", "config", "connections", "insight", "jobs", "operations", "pages", "rest", "scheduler"),
    "security",
)
"""Folders whose tests are run on PostgreSQL, too."""

WHOLE_ON_POSTGRESQL = (
    "cluster/test_timestamps",
    "config/test_migrated_tables",
    "jobs/test_idempotency",
    "jobs/test_bulk_update",
    "scheduler/test_constraints",
    "scheduler/test_lease",
    "scheduler/test_race_conditions",
    "scheduler/test_set_aside",
)
"""Quick modules that `make test` runs on both databases: constraints, locks, times, bulk writes are in no statement."""

STATEMENT_COVER = TESTS / "statement_cover.txt"
"""Quick tests that send PostgreSQL each different statement: `python -m tests.statement_cover` writes it."""

LONG_S = 40
LONG = {
    "service/test_agents.py": "a service, an agent and a lease that ends, in real time",
    "service/test_backup.py": "three starts of a service: before, after the backup, and from it",
    "service/test_kills.py": "six kills of the scheduler, and one of each other process",
    "service/test_previous_client.py": "an environment with the client of before",
    "stack/test_concurrent_writes.py": "the start of four processes on each database",
    "stack/test_stack_kills.py": "the start of the full stack, and leases that end",
}
"""Why a module of `make test` takes more than LONG_S on all workers together."""


class Kind(NamedTuple):
    """What decides in which tiers a test is."""

    slow: bool = False
    thorough: bool = False
    database: bool = False
    """Another database could change the outcome."""
    covers: bool = False
    """It is one of those that `make test` runs on PostgreSQL, too, though quick."""
    draws: bool = False
    """It tries examples that are drawn, a tenth of them in `make test`."""


def runs(kind: Kind, tier: Tier, *, on_postgresql: bool) -> bool:
    """Whether the tier runs the test on that database; by hand all run on either."""
    if tier is Tier.ALL:
        return True
    if not _has_its_turn(kind, on_postgresql=on_postgresql):
        return False
    if tier is Tier.FAST:
        return not (on_postgresql or kind.slow or kind.thorough)
    proves_it = not kind.thorough and (not on_postgresql or kind.slow or kind.covers)
    return proves_it if tier is Tier.TEST else not proves_it or kind.draws


def _has_its_turn(kind: Kind, *, on_postgresql: bool) -> bool:
    """Slow tests with rows run on PostgreSQL, what has none on SQLite, and quick ones with rows on both."""
    return kind.database if on_postgresql else not (kind.database and kind.slow)


def module_of(path: Path) -> str:
    """A module's name as in the tables above."""
    return path.relative_to(TESTS).as_posix()


def is_left_out(module: str, tier: Tier, *, on_postgresql: bool) -> bool:
    """Whether the tier runs none of the module's tests on that database, so that it need not be imported."""
    if on_postgresql and tier is not Tier.ALL and not module.startswith(ON_POSTGRESQL):
        return True
    if tier is Tier.FAST:
        return module.startswith((*SLOW, *THOROUGH))
    if tier is not Tier.TEST:
        return False
    quick = on_postgresql and not module.startswith((*SLOW, *WHOLE_ON_POSTGRESQL))
    return module.startswith(THOROUGH) or (quick and module not in {name.split("::")[0] for name in statement_cover()})


def is_thorough(module: str, test: str) -> bool:
    """Whether these tables leave the test to `make test-all`; a marker at the test may, too."""
    return module.startswith(THOROUGH) or (module in ONCE and test not in ONCE[module])


@cache
def statement_cover() -> frozenset[str]:
    """Names of tests as pytest tells them, without `tests/`."""
    return frozenset(STATEMENT_COVER.read_text().splitlines()) if STATEMENT_COVER.exists() else frozenset()
