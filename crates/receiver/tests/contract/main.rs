//! The contract, rule by rule, over all four wires: `rules!` makes a test of every rule for every wire, named after both.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

mod rules;
mod store;
mod wires;
mod world;

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
    identity::a_duplicate_of_finished_work_gets_the_recorded_answer_byte_for_byte,
    identity::a_duplicate_over_another_wire_gets_the_same_answer,
    identity::the_same_key_under_another_execution_is_new_work,
    identity::the_same_key_for_another_activity_is_new_work,
    identity::what_came_with_a_duplicate_is_not_looked_at,
    identity::without_metadata_equal_bodies_are_one_piece_of_work,
    identity::all_seven_keys_reach_the_handler_as_they_were_sent,
    failures::every_final_failure_is_recorded_and_told_again,
    failures::after_every_retryable_failure_the_next_attempt_runs,
    failures::a_panic_is_a_retryable_internal_failure,
    failures::a_handler_that_takes_too_long_is_given_up_and_may_run_again,
    failures::an_output_that_is_too_large_is_a_final_failure_without_effect,
    failures::an_unknown_activity_is_not_found,
    failures::a_failure_says_who_asked,
    claims::a_concurrent_duplicate_is_told_that_it_is_in_progress,
    claims::of_many_concurrent_duplicates_one_runs,
    claims::a_restart_makes_the_claims_of_the_dead_void,
    claims::a_claim_that_has_ended_may_be_taken_over_and_its_first_holder_records_nothing,
    claims::a_caller_who_goes_away_does_not_stop_the_work,
    claims::too_much_at_once_is_refused_and_nothing_is_recorded,
    claims::a_receiver_that_stops_ends_what_it_began_and_takes_nothing_new,
    deadlines::an_expired_deadline_is_refused_and_nothing_is_recorded,
    deadlines::without_a_deadline_there_is_no_guard,
    deadlines::finished_work_is_answered_after_its_deadline,
    deadlines::work_in_progress_is_told_before_its_deadline_is_looked_at,
    input::malformed_metadata_is_refused_before_anything_else_happens,
    input::an_input_that_is_no_json_is_refused,
    input::a_huge_body_is_refused_for_good,
    input::an_input_nested_too_deep_is_refused,
    probes::a_probe_never_runs_anything,
    probes::a_probe_answers_like_a_duplicate,
    commits::an_effect_and_its_answer_are_one_commit,
    commits::an_answer_whose_commit_is_unknown_is_found_or_made_again,
    commits::an_effect_that_conflicts_is_not_written_and_may_be_tried_again,
    commits::effects_of_a_retryable_failure_are_kept,
    commits::whatever_the_store_does_every_effect_is_there_once,
    commits::a_damaged_record_is_never_guessed_around,
}
