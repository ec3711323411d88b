"""Tiers of the test suite: which tests `make test-fast`, `make test` and `make test-all` run, and on which database.

`make test` proves each promise once, on real parts, within ten minutes. `make test-all` adds the tier `deep`: the same
under other isolations and policies, with more examples, and what needs PyTorch, Podman or a kernel of its own
(docs/decisions/0095); and `repeats`: quick tests that send PostgreSQL nothing new (docs/decisions/0143).
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
    """What `make test` leaves out of `make test-all`, but for what sends PostgreSQL nothing new."""
    REPEATS = "repeats"
    """That; it is no part of `.ci/run`."""
    ALL = "all"
    """Every test, on the database at hand: of a run by hand."""


SLOW = (
    "chaos/test_chaos",
    "security",
    "service",
    "stack",
    "client/test_installed_alone",
    "client/test_sample_job",
    "client/test_training_helper",
    "cluster/test_nodes",
    "command/test_completion",
    "command/test_simulate_command",
    "command/test_terminal_output",
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
    "simulation/test_bound",
    "simulation/test_clock",
    "simulation/test_comparison",
    "simulation/test_gavel",
    "simulation/test_generator",
    "simulation/test_recorded_runs",
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
    "rest/test_docs_page",
    "security/test_long_texts",
    "connections/test_engine_on_slurm",
    "scheduler/test_training",
    "service/test_agents",
    "service/test_contention",
    "service/test_node_sleep",
    "service/test_power_loss",
    "service/test_real_gpus",
    "service/test_server_add",
    "service/test_servers_ddp",
    "service/test_servers_update",
    "service/test_slurm_demo",
    "service/test_worker_ends",
    "simulation/test_sia_runs",
    "stack/test_stack_backup",
    "stack/test_stack_durations",
    "stack/test_systemd_units",
    "training/test_ddp",
    "training/test_frameworks",
    "training/test_gradient_noise",
    "training/test_tracking",
)
"""Modules that `make test-all` alone runs (marker `thorough`); the others do not import them."""

ONCE = {
    "accounting/test_gpu_watch.py": (
        "test_a_cordon_between_reading_and_writing_is_not_lost",
        "test_a_dead_gpu_leaves_seven_in_use",
        "test_a_gpu_that_fails_the_hook_before_a_job_is_out_and_the_job_runs_elsewhere",
        "test_a_gpu_that_was_taken_out_by_hand_stays_out",
        "test_a_minute_has_the_mean_and_the_highest_of_its_readings",
        "test_a_process_that_nobody_accounts_for_takes_its_gpu_out_while_it_is_there",
        "test_after_a_time_without_watch_no_job_is_stopped_for_what_was_known_before",
        "test_an_idle_gpu_warns_its_owner_after_ten_minutes_and_once",
        "test_by_the_rule_of_its_team_an_idle_job_is_stopped_gracefully",
        "test_energy_is_power_times_time",
        "test_many_gpus_are_read_in_parts_but_each_once_a_minute",
        "test_readings_belong_to_the_attempt_that_holds_the_gpu",
        "test_readings_that_cannot_be_stored_stop_nothing_else_of_a_turn",
        "test_the_rule_of_a_team_is_from_ten_minutes_to_a_year",
    ),
    "chaos/test_chaos.py": (
        "test_a_ledger_shows_steps_that_are_missing_or_done_by_two_at_once",
        "test_events_show_what_the_table_of_states_does_not_allow",
    ),
    "client/test_installed_alone.py": (
        "test_the_command_needs_nothing_of_the_service",
        "test_the_wheel_that_the_service_serves_installs_the_command",
    ),
    "cluster/test_nodes.py": (
        "test_a_cordoned_node_gets_nothing_new",
        "test_a_draining_node_is_drained_when_its_last_job_has_gone_and_can_be_resumed",
        "test_a_job_on_a_drained_node_goes_on_elsewhere",
        "test_a_node_is_not_taken_out_without_a_reason",
        "test_health_follows_from_silence",
        "test_silence_counts_only_while_the_scheduler_listened",
        "test_the_gpus_of_a_lost_node_are_not_handed_on",
        "test_the_job_of_a_lost_node_is_requeued",
        "test_what_is_left_on_a_node_that_comes_back_is_gone_before_its_gpus_are_handed_on",
    ),
    "command/test_completion.py": (
        "test_a_service_that_does_not_answer_offers_nothing_and_says_nothing",
        "test_every_shell_has_a_completion_script",
        "test_jobs_are_offered_by_name_and_by_id",
    ),
    "command/test_terminal_output.py": (
        "test_a_pipe_gets_whole_lines_without_colours",
        "test_errors_cannot_reprogram_the_terminal",
        "test_names_cannot_reprogram_the_terminal",
        "test_watch_draws_until_ctrl_c",
    ),
    "connections/test_agents.py": (
        "test_a_copy_of_a_machine_is_refused_and_the_other_goes_on",
        "test_a_join_token_is_of_one_machine",
        "test_a_launch_is_repeated_until_it_is_reported_and_is_encrypted_meanwhile",
        "test_a_machine_joins_as_a_node_with_its_window_and_its_notice",
        "test_a_machine_that_is_cut_off_has_its_job_run_elsewhere_once",
        "test_a_machine_that_leaves_is_drained_goes_and_comes_back",
        "test_a_machine_that_takes_the_place_of_another_inherits_no_attempt",
        "test_a_machines_token_is_good_for_nothing_else",
        "test_a_new_join_token_revives_no_machine_that_was_revoked",
        "test_an_end_counts_when_logs_and_checkpoints_have_come",
        "test_lost_answers_make_no_copy",
        "test_members_see_the_machines_of_their_teams_over_rest_and_change_none",
        "test_no_machine_sees_the_launch_of_another",
        "test_the_share_of_a_job_at_a_real_agent_changes_while_it_runs",
        "test_whether_a_job_goes_to_a_machine_that_joined",
    ),
    "connections/test_engines.py": (
        "test_a_disabled_engine_gets_no_new_job_and_its_running_job_goes_on",
        "test_a_gang_runs_at_the_engine_that_has_its_gpus",
        "test_a_launch_that_does_not_reach_its_engine_is_sent_again",
        "test_a_node_that_no_engine_has_heard_is_unknown_and_gets_no_job",
        "test_an_engine_that_does_not_answer_stops_no_other",
        "test_good_options_are_taken",
        "test_gpus_that_others_use_are_not_given_to_jobs",
        "test_jobs_run_at_two_engines_at_once",
        "test_nodes_of_an_engine_that_does_not_answer_are_suspect_and_never_lost",
        "test_options_are_refused_with_their_name_and_the_remedy",
    ),
    "connections/test_storage.py": (
        "test_a_job_finds_the_path_in_a_variable_and_as_a_link_in_its_folder",
        "test_a_job_goes_on_where_its_storage_is",
        "test_a_job_is_placed_at_the_engine_that_has_its_storage",
        "test_a_job_waits_for_the_nodes_with_its_storage_and_says_so",
        "test_a_missing_path_is_the_fault_of_the_node_and_the_job_waits",
        "test_a_path_of_the_gpu_type_comes_before_that_of_the_engine",
        "test_an_unknown_name_is_refused_with_the_known_ones",
        "test_rest_lists_names_and_engines_and_paths_for_administrators",
    ),
    "engines/test_engine_runs.py": (
        "test_a_command_as_a_list_is_inert",
        "test_a_command_that_cannot_run_says_what_to_do",
        "test_a_job_finds_its_storage_as_a_link_in_the_folder_that_the_engine_made",
        "test_a_job_id_that_is_no_uuid_is_refused",
        "test_a_job_is_not_held_up_by_a_full_log",
        "test_a_job_runs_to_its_end_with_its_exit_code",
        "test_a_job_starts_in_its_own_folder_and_finds_it_again_in_its_next_attempt",
        "test_a_job_whose_storage_is_missing_is_not_started",
        "test_a_launch_from_several_processes_at_once_runs_once",
        "test_a_launch_whose_supervisor_never_began_is_unknown_and_may_be_sent_again",
        "test_a_log_is_read_on_from_its_offset",
        "test_a_log_stops_at_its_limit_and_says_so",
        "test_a_progress_file_that_becomes_a_link_is_read_no_further",
        "test_a_rank_that_fails_takes_the_others_with_it_and_gives_the_exit_code",
        "test_a_service_that_is_killed_takes_no_job_with_it",
        "test_an_attempt_lasts_until_its_last_rank_has_ended",
        "test_each_rank_has_its_own_variables_and_log",
        "test_exit_codes_are_the_shells",
        "test_files_that_are_discarded_go_whatever_the_job_has_made_of_them",
        "test_nothing_of_the_services_environment_reaches_the_job",
        "test_progress_is_there_while_the_job_runs",
        "test_progress_of_a_gang_is_that_of_the_rank_that_reports",
        "test_secrets_reach_the_job_are_masked_in_its_log_and_stay_in_no_file",
        "test_the_same_launch_again_does_nothing",
        "test_the_supervisor_has_nothing_of_the_services_environment",
        "test_the_variables_of_the_launch_and_of_the_rank_reach_the_job",
        "test_what_a_job_prints_is_in_its_two_logs",
    ),
    "engines/test_engine_sessions.py": (
        "test_a_command_runs_beside_the_job_with_its_environment_and_folder",
        "test_a_job_cannot_lead_a_session_into_namespaces_of_its_own",
        "test_a_session_has_no_more_rights_than_the_job",
        "test_a_session_sees_only_the_processes_of_the_job_and_ends_with_it",
        "test_a_session_that_stops_its_parent_keeps_no_gpu",
        "test_a_shell_has_a_terminal_of_the_clients_size",
        "test_connections_to_a_port_of_the_job_are_served_side_by_side",
        "test_each_rank_has_sessions_of_its_own",
        "test_from_another_container_a_session_runs_where_the_job_does",
        "test_input_reaches_the_command_up_to_its_end",
        "test_no_other_account_opens_the_door_of_an_attempt",
        "test_what_a_session_runs_ends_when_its_client_has_gone",
    ),
    "engines/test_engine_stops.py": (
        "test_a_job_dies_with_its_supervisor_without_a_poll",
        "test_a_job_that_ignores_the_request_is_killed_after_its_grace",
        "test_a_job_that_is_stopped_may_save_its_work_and_choose_its_exit_code",
        "test_a_job_that_kills_its_first_process_ends_all_the_same",
        "test_a_job_whose_first_thread_has_ended_is_killed_with_its_supervisor",
        "test_a_program_below_a_shell_has_its_grace_when_the_shell_dies_at_once",
        "test_a_stop_before_the_launch_keeps_it_from_running",
        "test_a_stop_right_after_the_launch_is_not_lost",
        "test_all_is_gone_when_the_supervisor_was_killed",
        "test_all_ranks_are_stopped",
        "test_an_attempt_that_was_lost_is_never_begun_again",
        "test_grandchildren_are_gone_when_the_job_was_stopped",
        "test_grandchildren_without_the_mark_are_gone_when_the_job_has_ended",
    ),
    "engines/test_slurm_engine.py": (
        "test_a_job_that_slurm_starts_twice_runs_once",
        "test_the_job_sees_the_devices_that_slurm_chose",
    ),
    "jobs/test_commands.py": (
        "test_a_cancel_overrides_a_requeue_that_is_under_way",
        "test_a_child_starts_only_after_its_parent_succeeded",
        "test_a_command_that_cannot_be_started_fails_with_words",
        "test_a_failed_parent_cancels_its_child_with_the_reason",
        "test_a_failing_job_is_tried_again_as_often_as_it_said",
        "test_a_held_job_does_not_start",
        "test_a_job_is_stopped_when_no_session_was_in_use_for_its_idle_limit",
        "test_a_job_that_finishes_during_its_grace_has_succeeded",
        "test_a_queued_job_is_cancelled_at_once",
        "test_a_requeued_job_runs_again",
        "test_a_running_job_is_cancelled_once_it_is_gone",
        "test_a_running_job_that_is_held_goes_back_to_the_queue_and_stays_there",
        "test_an_array_runs_so_many_at_a_time",
        "test_exit_75_costs_no_retry",
        "test_the_gpus_of_a_cancelled_job_are_free_again",
        "test_the_time_limit_counts_all_attempts_together",
    ),
    "pages/test_pages_in_a_browser.py": (
        "test_a_change_arrives_while_focus_and_choice_stay",
        "test_a_chart_is_drawn_under_a_strict_policy",
        "test_a_fault_appears_at_its_field_and_goes_when_it_is_mended",
        "test_a_log_is_followed_from_before_the_start_to_the_end",
        "test_a_page_fits_a_phone",
        "test_selected_jobs_are_held_by_the_bar_that_appears_with_the_selection",
        "test_the_form_follows_the_yaml",
        "test_the_rows_are_walked_and_opened_by_keys",
        "test_what_is_being_typed_survives_a_live_update",
    ),
    "rest/test_content_security_policy.py": (
        "test_an_injected_script_does_not_run",
        "test_pages_keep_to_the_policy",
    ),
    "rest/test_rest_logs.py": (
        "test_a_line_cannot_pretend_to_be_an_event",
        "test_a_range_is_answered_in_part",
        "test_a_reader_who_goes_away_frees_the_place",
        "test_a_stream_ends_with_the_membership",
        "test_lines_are_found_however_long_the_log",
        "test_lines_come_as_events_and_the_last_says_so",
        "test_lines_come_while_the_job_runs_and_the_end_when_it_ends",
        "test_many_followers_are_told_when_to_come_again_and_a_single_one_is_not",
        "test_the_id_of_the_last_event_goes_on_behind_it",
        "test_the_last_lines",
        "test_the_tokens_of_others_open_no_stream",
        "test_what_cannot_be_asked_is_pointed_at",
    ),
    "scheduler/test_admin_pages.py": (
        "test_a_node_is_added_with_its_gpus",
        "test_a_node_is_cordoned_with_a_reason",
        "test_a_node_that_was_added_takes_jobs",
        "test_a_permission_to_view_jobs_cancels_none",
        "test_a_permission_to_view_machines_revokes_none",
        "test_a_policy_is_chosen",
        "test_a_team_gets_a_quota_on_a_gpu_type",
        "test_a_team_is_added_with_its_members",
        "test_a_token_is_revoked",
        "test_an_account_with_a_history_is_deactivated_instead_of_deleted",
        "test_an_administrator_cancels_jobs",
        "test_before_a_drain_the_jobs_there_and_the_time_it_takes_are_said",
        "test_every_list_opens",
        "test_faulty_parameters_are_refused_with_their_names",
        "test_gpus_that_a_job_has_are_not_taken_out_of_their_node",
        "test_parameters_are_chosen_in_the_administration",
        "test_the_list_of_machines_costs_as_many_queries_however_many_there_are",
        "test_the_text_of_a_token_is_shown_once",
        "test_users_without_staff_rights_are_sent_to_sign_in",
        "test_what_cannot_be_read_is_said_at_the_field",
    ),
    "scheduler/test_batch_tuning.py": (
        "test_a_noisy_gradient_and_known_speeds_give_a_larger_batch",
        "test_what_running_jobs_report_gives_the_next_one_a_larger_batch",
        "test_while_nothing_is_known_the_batch_is_the_initial_one",
    ),
    "scheduler/test_cpu_memory.py": (
        "test_a_job_gets_the_cpus_that_another_does_not_need",
        "test_by_default_nothing_is_chosen",
        "test_cpus_are_doubled_from_job_to_job_for_as_long_as_that_gains_enough",
        "test_memory_is_given_to_a_job_that_waits_for_storage",
        "test_memory_that_a_job_was_measured_to_hold_is_left_to_it",
        "test_rest_shows_the_share_of_each_attempt_and_why",
        "test_the_limits_of_a_running_job_are_lowered_and_raised_again_without_a_restart",
    ),
    "scheduler/test_elastic.py": ("test_it_goes_from_one_gpu_to_four_and_back_and_does_every_step_once",),
    "scheduler/test_job_environment.py": (
        "test_a_job_finds_its_name_team_and_attempt",
        "test_a_task_of_a_script_knows_its_place_in_the_array",
        "test_an_uneven_gang_has_as_many_processes_as_gpus_on_each_node",
        "test_no_two_jobs_on_a_machine_meet_at_one_port",
        "test_nothing_of_the_services_own_environment_reaches_the_job",
        "test_ranks_of_torchrun_are_those_of_motley",
        "test_the_configuration_page_lists_what_is_reserved",
        "test_the_job_of_a_batch_script_finds_slurms_variables",
        "test_the_nodes_of_a_gang_know_their_ranks",
        "test_the_nodes_of_a_gang_meet_at_one_port",
        "test_two_jobs_on_a_node_see_different_gpus",
        "test_what_motley_says_is_reserved_by_name",
        "test_what_python_prints_is_in_the_log_of_the_running_job",
    ),
    "scheduler/test_node_sleep.py": (
        "test_a_command_that_fails_is_shown_and_repeated_later",
        "test_a_node_that_does_not_report_in_time_needs_a_person",
        "test_no_job_is_placed_on_a_node_that_sleeps",
        "test_nodes_sleep_at_low_load_and_wake_for_a_burst",
        "test_the_fewest_nodes_are_woken_and_a_gang_may_use_awake_ones",
        "test_who_lost_the_lease_starts_no_command",
    ),
    "scheduler/test_placement.py": (
        "test_a_job_runs_and_succeeds",
        "test_a_job_that_can_run_nowhere_does_not_stop_the_round",
        "test_each_job_gets_the_type_on_which_it_gains_most",
        "test_only_allowed_types_are_used",
        "test_scattered_gpus_are_counted",
        "test_the_cpus_of_a_gang_that_a_cordon_ties_to_its_nodes_are_not_given_twice",
        "test_the_headline_is_the_first_reason_in_words",
        "test_the_teams_limit_is_counted",
        "test_two_elastic_jobs_share_a_node",
    ),
    "scheduler/test_preemption.py": (
        "test_a_gpu_is_not_handed_on_while_a_process_may_be_left",
        "test_a_job_that_may_not_be_preempted_is_not",
        "test_a_job_waits_for_gpus_only_while_somebody_is_leaving_them",
        "test_a_moved_job_is_not_at_two_places",
        "test_cancelling_a_moving_job_frees_both_places",
        "test_jobs_that_take_turns_are_stopped_for_others_and_hold_their_gpus_alone",
        "test_the_receipt_names_the_job_that_gets_the_gpus",
        "test_the_victim_goes_on_later",
    ),
    "scheduler/test_recovery.py": (
        "test_a_job_that_asks_at_once_to_be_requeued_waits_longer_each_time",
        "test_a_job_whose_supervisor_dies_runs_again",
        "test_a_launch_that_arrives_after_the_job_was_cancelled_begins_nothing",
        "test_a_launch_that_was_not_sent_is_sent",
        "test_a_new_process_of_the_service_finds_running_jobs_again",
        "test_a_pause_that_began_before_the_clock_was_set_back_is_over",
        "test_an_attempt_whose_files_are_gone_is_lost",
    ),
    "scheduler/test_slurm.py": ("test_a_controller_that_is_away_costs_no_job",),
    "security/test_malformed_bodies.py": (
        "test_a_body_that_is_none_is_refused_in_words",
        "test_a_page_refuses_a_body_that_is_too_large",
        "test_aliases_of_aliases_cost_nothing",
        "test_every_route_that_takes_a_job_refuses_it",
        "test_no_depth_of_brackets_breaks_anything",
        "test_yaml_that_is_none_or_an_attack_is_refused_with_its_reason",
    ),
    "security/test_misbehaving_jobs.py": (
        "test_a_checkpoint_folder_that_cannot_be_written_is_said_with_the_remedy",
        "test_a_log_without_an_end_is_cut_and_says_so",
        "test_a_rate_that_cannot_be_is_not_learned_by_others",
        "test_lines_that_are_no_reports_are_said_once",
        "test_nothing_outside_is_read_as_progress",
        "test_progress_of_another_team_cannot_be_forged",
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
        "test_a_killed_service_finds_its_running_jobs_again",
        "test_jobs_finish_once_though_the_scheduler_is_killed_again_and_again",
    ),
    "service/test_listeners.py": ("test_no_job_takes_the_port_while_a_part_is_restarted",),
    "service/test_long_requests.py": ("test_pages_and_probes_answer_beside_more_of_them_than_there_are_threads",),
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
    "service/test_sessions.py": (
        "test_a_command_runs_in_the_job_and_its_exit_code_is_ours",
        "test_a_session_ends_with_its_job",
    ),
    "service/test_slow_clients.py": ("test_others_are_answered_meanwhile",),
    "simulation/test_comparison.py": (
        "test_a_run_of_a_comparison_is_the_run_by_itself",
        "test_a_run_that_is_killed_is_named_and_the_others_are_reported",
        "test_policies_and_seeds_are_told_as_json_csv_jobs_and_a_table",
        "test_stopping_it_leaves_no_process_behind",
        "test_the_difference_from_the_first_policy_is_taken_seed_by_seed",
        "test_the_report_draws_everything_asks_for_nothing_and_takes_no_name_for_markup",
        "test_what_means_nothing_is_refused_before_anything_runs",
    ),
    "stack/test_concurrent_writes.py": (
        "test_a_cancel_is_never_lost",
        "test_an_attempt_begins_once",
        "test_of_several_claims_of_a_gpu_one_succeeds",
    ),
    "stack/test_stack_kills.py": (
        "test_all_go_on_by_themselves_after_the_database_was_restarted",
        "test_of_two_workers_one_schedules_and_the_other_takes_over_when_it_is_killed",
    ),
    "stack/test_stack_submission.py": ("test_a_job_submitted_over_rest_runs_to_its_end",),
}
"""Of these modules, which wait for processes or browsers, `make test` runs the tests named here: one of each promise,
and of what people do every day. A new test is thorough."""

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
    "rest/test_concurrent_changes",
    "scheduler/test_constraints",
    "scheduler/test_lease",
    "scheduler/test_race_conditions",
    "scheduler/test_recurring_jobs",
    "scheduler/test_set_aside",
)
"""Quick modules that `make test` runs on both databases: constraints, locks, times, bulk writes are in no statement."""

ON_POSTGRESQL_ALONE = ("rest/test_schema_fuzz",)
"""Slow modules of which every test has rows: on SQLite they are not imported, for that takes seconds in each worker."""

STATEMENT_COVER, STATEMENT_KNOWN = TESTS / "statement_cover.txt", TESTS / "statement_known.txt"
"""Quick tests that send PostgreSQL each different statement, and the functions of all that were asked for the list:
`python -m tests.statement_cover` writes both."""

LONG_S = 40
LONG = {
    "accounting/test_gpu_watch.py": "rules whose periods pass on real jobs",
    "connections/test_agents.py": "forty conversations with played agents, over REST",
    "rest/test_schema_fuzz.py": "requests of every kind to every route",
    "cluster/test_nodes.py": "nodes that are drained and lost under real jobs",
    "connections/test_engines.py": "engines that do not answer until they count as lost",
    "pages/test_pages_in_a_browser.py": "every page in Chromium, at two widths",
    "accounting/test_duration_model.py": "models that are fitted to hundreds of jobs",
    "insight/test_policy_lab.py": "lab runs in processes of their own",
    "operations/test_restore_from_0_1.py": "rows of every kind, restored into tables that are then brought on",
    "scheduler/test_job_environment.py": "twenty jobs, each a real process",
    "service/test_browser.py": "a job from the form to its end, in Chromium",
    "service/test_quick_start.py": "the start of the demo that other modules share, and its jobs on three GPU types",
    "service/test_servers.py": "a service, four servers in namespaces of their own, and leases that end in real time",
    "simulation/test_bound.py": "every policy on one trace, and twenty of Sia's jobs whose batches grow",
    "cluster/test_csv_import.py": "seventy files, each a preview in the admin and most of them a confirmation",
    "simulation/test_comparison.py": "comparisons in processes of their own, and their page in Chromium",
    "command/test_motley_command.py": "seventy tests of the command, each of which empties the database",
    "service/test_backup.py": "three starts of a service: before, after the backup, and from it",
    "scheduler/test_slurm.py": "a controller that is away and comes back, and Slurm's own pace",
    "service/test_kills.py": "the start that ten modules share, and kills of each process",
    "service/test_previous_client.py": "fifteen processes of the client of before",
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
    """It tries examples that are drawn, a tenth of them in `make test`, or repeats an action, fewer times there."""
    known: bool = False
    """The cover was chosen among others with it."""


def runs(kind: Kind, tier: Tier, *, on_postgresql: bool) -> bool:
    """Whether the tier runs the test on that database; by hand all run on either."""
    if tier is Tier.ALL:
        return True
    if not _has_its_turn(kind, on_postgresql=on_postgresql):
        return False
    if tier is Tier.FAST:
        return not (on_postgresql or kind.slow or kind.thorough)
    proves_it = not kind.thorough and (not on_postgresql or kind.slow or kind.covers)
    if tier is Tier.TEST:
        return proves_it
    repeats = on_postgresql and kind.known and not (proves_it or kind.thorough or kind.draws)
    return repeats if tier is Tier.REPEATS else kind.draws or not (proves_it or repeats)


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
    if not on_postgresql and tier is not Tier.ALL and module.startswith(ON_POSTGRESQL_ALONE):
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
    return _lines(STATEMENT_COVER)


@cache
def statement_known() -> frozenset[str]:
    """Names of functions, without `tests/`: `jobs/test_spec.py::test_a_job`."""
    return _lines(STATEMENT_KNOWN)


def _lines(path: Path) -> frozenset[str]:
    return frozenset(path.read_text().splitlines()) if path.exists() else frozenset()
