//! A run in memory, and the rows it is stored in.
//!
//! Nothing here decides what a run does.

pub(super) mod fold;
pub(super) mod history_pages;
pub(super) mod run_rows;
pub(super) mod run_state;
pub(super) mod view;
