//! Tests the contract over all four wires: what can be checked from outside by `abide_conform`, and the rest rule by
//! rule. `rules!` makes one test per rule and wire, named after both.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

mod conformance;
mod fixture;
mod rules;
mod slow_store;
mod wires;

macro_rules! rules {
    ($($group:ident::$rule:ident,)*) => {
        $(mod $rule {
            use crate::wires::Wire;

            #[tokio::test(start_paused = true)]
            async fn rest() {
                crate::rules::$group::$rule(Wire::Rest).await;
            }

            #[tokio::test(start_paused = true)]
            async fn protobuf() {
                crate::rules::$group::$rule(Wire::Protobuf).await;
            }

            #[tokio::test(start_paused = true)]
            async fn grpc() {
                crate::rules::$group::$rule(Wire::Grpc).await;
            }

            #[tokio::test(start_paused = true)]
            async fn envelope() {
                crate::rules::$group::$rule(Wire::Envelope).await;
            }
        })*
    };
}

rules! {
    identity::a_duplicate_after_a_restart_gets_the_recorded_result_byte_for_byte,
    identity::a_duplicate_over_another_wire_gets_the_same_result,
    identity::the_same_key_for_another_activity_is_a_new_call,
    identity::without_metadata_equal_inputs_are_one_call,
    identity::all_seven_keys_reach_the_handler_as_they_were_sent,
    failures::every_permanent_failure_is_recorded_and_returned_again,
    failures::a_panic_is_a_retryable_internal_failure,
    failures::a_handler_that_takes_too_long_is_aborted_and_may_run_again,
    failures::an_output_that_is_too_large_is_a_permanent_failure_without_effect,
    failures::an_unknown_activity_is_not_found,
    failures::a_failure_names_its_execution,
    claims::a_concurrent_duplicate_gets_in_progress,
    claims::of_many_concurrent_duplicates_one_runs,
    claims::a_restart_voids_the_claims_of_the_dead_process,
    claims::an_expired_claim_may_be_taken_over_and_its_first_holder_records_nothing,
    claims::a_client_that_disconnects_does_not_stop_the_handler,
    claims::calls_above_the_concurrency_limit_are_rejected_and_not_recorded,
    claims::a_draining_receiver_finishes_running_calls_and_rejects_new_ones,
    deadlines::an_expired_deadline_is_rejected_and_not_recorded,
    deadlines::without_a_deadline_no_call_is_late,
    deadlines::a_call_in_progress_is_reported_before_its_deadline_is_checked,
    input::malformed_metadata_is_rejected_before_anything_else,
    input::an_input_that_is_not_json_is_rejected,
    input::a_body_that_is_too_large_fails_permanently,
    input::an_input_nested_too_deep_is_rejected,
    input::an_operation_that_the_conformance_activity_does_not_know_is_rejected,
    probes::a_probe_never_runs_anything,
    probes::a_probe_returns_what_a_duplicate_gets,
    commits::writes_and_result_are_one_commit,
    commits::a_result_whose_commit_is_unknown_is_found_by_the_next_attempt,
    commits::a_conflicting_write_is_not_applied_and_may_be_retried,
    commits::with_any_store_faults_every_effect_happens_once,
    commits::a_damaged_record_is_reported_and_the_handler_does_not_run,
}
