//! Runs the commands of the documentation: every command of every `sh` block, each page in its own folder with its own
//! servers. The output must match the `text` blocks.
//!
//! - A file for the reader to save is a `json` block after a line `<!-- file: NAME -->`. The test writes it at that
//!   point.
//! - A command must succeed, or have the comment `# exits with N`.
//! - A `text` block right after an `sh` block has lines of its output, in order. `…` stands for any text.
//! - If a page does not start a server, the test starts one.
//! - The preconditions of pages, and the few commands that are not run, are in `page_setups.rs`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on panics")]

mod output_match;
mod page;
mod page_player;
mod page_setups;
mod shell;

use page::Page;
use page_setups::{PageSetup, SKIPPED, skipped};

/// Plays a page of the repository and prints the numbers of its commands.
fn check(path: &str) {
    let page = Page::read(path);
    let setup = page_setups::of(path);
    match page_player::play(&page, setup) {
        Ok(result) => eprintln!("{path}: {} commands run, {} skipped", result.run, result.skipped),
        Err(error) => panic!("{error}"),
    }
}

/// Makes a test of each page.
macro_rules! pages {
    ($($test:ident: $path:literal,)*) => {
        const NAMED: &[&str] = &[$($path,)*];
        $(#[test] fn $test() { check($path); })*
    };
}

pages! {
    the_readme_works_as_it_stands: "README.md",
    the_tutorial_works_as_it_stands: "docs/guides/tutorial.md",
    changing_a_workflow_that_runs_works_as_it_stands: "docs/guides/deploy.md",
    rehearsing_a_workflow_works_as_it_stands: "docs/guides/run.md",
    the_api_works_as_it_stands: "docs/reference/api.md",
    the_api_of_durable_functions_works_as_it_stands: "docs/reference/durable-functions.md",
    playing_the_examples_works_as_it_stands: "examples/README.md",
    calling_a_worker_twice_works_as_it_stands: "examples/workers/README.md",
    checking_a_service_works_as_it_stands: "docs/reference/dispatch.md",
}

/// New pages are played without being named here. They have no preconditions.
#[test]
fn every_other_page_works_as_it_stands() {
    assert!(
        page_setups::PAGE_SETUPS.iter().all(|setup| NAMED.contains(&setup.page)),
        "each has its own test"
    );
    for path in page::paths().iter().filter(|path| !NAMED.contains(&path.as_str())) {
        check(path);
    }
}

#[test]
fn every_skipped_command_is_on_a_page_and_has_a_reason() {
    let pages: Vec<Page> = page::paths().iter().map(|path| Page::read(path)).collect();
    let commands: Vec<_> = pages.iter().flat_map(Page::commands).collect();
    assert!(commands.len() > 40, "the pages are found: {} commands", commands.len());
    for (prefix, reason) in SKIPPED {
        assert!(!reason.is_empty());
        let used = commands.iter().any(|command| skipped(&command.text) == Some(reason));
        assert!(used, "no page has {prefix:?}: remove it from the list");
    }
}

/// Plays a page made for a test and returns its error, or an empty text.
fn wrong(text: &str) -> String {
    page_player::play(&Page::parse("made-up.md", text), &PageSetup::NOTHING).err().unwrap_or_default()
}

#[test]
fn a_wrong_page_is_reported_with_its_line() {
    let failing = wrong("# Here\n\n```sh\ntrue\nfalse\n```\n");
    assert!(failing.starts_with("made-up.md:5: `false` exits with 1, not with 0"), "{failing}");
    let succeeding = wrong("```sh\ntrue # exits with 1\n```\n");
    assert!(succeeding.contains("exits with 0, not with 1"), "{succeeding}");
    let silent = wrong("```sh\necho one\n```\n\n```text\none\ntwo\n```\n");
    assert!(silent.starts_with("made-up.md:2: \"two\" is not printed"), "{silent}");
    assert_eq!(
        wrong("```sh\necho one\n```\n\nOr else:\n\n```text\ntwo\n```\n"),
        "",
        "a block after prose is not expected output"
    );
    let unknown = wrong("```sh\nscripts/none\n```\n");
    assert!(unknown.contains("exits with 127"), "{unknown}");
    let unread = wrong("```sh\necho 'one\n```\n");
    assert!(unread.contains("exits with "), "{unread}");
    let other = wrong("```bash\ntrue\n```\n");
    assert!(other.contains("must be marked ```sh"), "{other}");
    let dead = wrong("```sh\nabide serve --data /dev/null/none &\n```\n");
    assert!(dead.contains("no server"), "{dead}");
    assert_eq!(
        wrong("```sh\ncd /\n```\n\n```sh\npwd\n```\n\n```text\n/\n```\n"),
        "",
        "one shell for the whole page"
    );
}
