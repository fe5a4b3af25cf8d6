//! What the documentation tells people to type is typed, as it stands: every command of every `sh` block, in a folder of its own, against servers
//! of its own. What it shows in a `text` block must be what is printed.
//!
//! - A file that the reader is to write is a `json` block after a line `<!-- file: NAME -->`. It is written where it stands.
//! - A command must succeed, or say `# exits with N`.
//! - A `text` block right after an `sh` block has lines of what that prints, in order; `…` in them stands for anything.
//! - A page that does not start a server finds one running.
//! - What a page takes for granted, and the few commands that are not run, are in `settings.rs`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on panics")]

mod page;
mod play;
mod printed;
mod settings;
mod shell;

use page::Page;
use settings::{SKIPPED, Setting, skipped};

/// Plays a page of the repository and says what was done.
fn check(path: &str) {
    let (page, setting) = (Page::read(path), settings::of(path));
    match play::play(&page, setting) {
        Ok(played) => eprintln!("{path}: {} commands run, {} skipped", played.run, played.skipped),
        Err(wrong) => panic!("{wrong}"),
    }
}

/// A test for each of these pages.
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

/// Pages that are added later are played without being named here; they take nothing for granted.
#[test]
fn every_other_page_works_as_it_stands() {
    assert!(settings::SETTINGS.iter().all(|setting| NAMED.contains(&setting.page)), "they have a test each");
    for path in page::paths().iter().filter(|path| !NAMED.contains(&path.as_str())) {
        check(path);
    }
}

#[test]
fn what_is_skipped_is_there_and_has_a_reason() {
    let pages: Vec<Page> = page::paths().iter().map(|path| Page::read(path)).collect();
    let commands: Vec<_> = pages.iter().flat_map(Page::commands).collect();
    assert!(commands.len() > 40, "the pages are found: {} commands", commands.len());
    for (prefix, reason) in SKIPPED {
        assert!(!reason.is_empty());
        let used = commands.iter().any(|command| skipped(&command.text) == Some(reason));
        assert!(used, "no page says {prefix:?} any more: take it off the list");
    }
}

/// Plays a page that is made up, and gives what is wrong with it.
fn wrong(text: &str) -> String {
    play::play(&Page::parse("made-up.md", text), &Setting::NOTHING).err().unwrap_or_default()
}

#[test]
fn a_page_that_lies_is_found_out_with_its_place() {
    let failing = wrong("# Here\n\n```sh\ntrue\nfalse\n```\n");
    assert!(failing.starts_with("made-up.md:5: `false` exits with 1, not with 0"), "{failing}");
    let succeeding = wrong("```sh\ntrue # exits with 1\n```\n");
    assert!(succeeding.contains("exits with 0, not with 1"), "{succeeding}");
    let silent = wrong("```sh\necho one\n```\n\n```text\none\ntwo\n```\n");
    assert!(silent.starts_with("made-up.md:2: \"two\" is not printed"), "{silent}");
    assert_eq!(
        wrong("```sh\necho one\n```\n\nOr else:\n\n```text\ntwo\n```\n"),
        "",
        "it is not what is printed here"
    );
    let unknown = wrong("```sh\nscripts/none\n```\n");
    assert!(unknown.contains("exits with 127"), "{unknown}");
    let unread = wrong("```sh\necho 'one\n```\n");
    assert!(unread.contains("exits with "), "{unread}");
    let other = wrong("```bash\ntrue\n```\n");
    assert!(other.contains("is written ```sh"), "{other}");
    let dead = wrong("```sh\nabide serve --data /dev/null/none &\n```\n");
    assert!(dead.contains("no server"), "{dead}");
    assert_eq!(
        wrong("```sh\ncd /\n```\n\n```sh\npwd\n```\n\n```text\n/\n```\n"),
        "",
        "one shell for all of it"
    );
}
