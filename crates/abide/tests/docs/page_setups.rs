//! The preconditions of pages (files and steps that a page does not show), and the commands that are not run.
//!
//! A complete page needs no entry here, so entries should be few.

/// The prefixes of commands that are not run, with the reason.
pub(crate) const SKIPPED: &[(&str, &str)] = &[
    ("cargo build", "the binary is already built: it is the one under test"),
    ("scripts/demo", "builds, and runs until it is stopped; `abide demo` has its own tests"),
    ("scripts/test", "runs all tests, including this one"),
    ("scripts/crash", "builds, takes minutes, and partly needs root: the rigs are run separately"),
];

/// The reason why a command is not run, or `None` if it is run.
pub(crate) fn skipped(command: &str) -> Option<&'static &'static str> {
    let begins = |prefix: &str| {
        let rest = command.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    SKIPPED.iter().find(|(prefix, _)| begins(prefix)).map(|(_, reason)| reason)
}

/// The preconditions of a page.
pub(crate) struct PageSetup {
    pub(crate) page: &'static str,
    /// A bash script that runs before the page.
    pub(crate) given: &'static str,
    /// Files that the page shows without a mark: the heading of a section with one block of JSON, and the file's name.
    pub(crate) shown: &'static [(&'static str, &'static str)],
    /// Scripts that run before a command: the command's prefix, and the script.
    pub(crate) before: &'static [(&'static str, &'static str)],
    /// The exit codes of commands that fail where the page says so in words only: the command's prefix, and the code.
    pub(crate) exits: &'static [(&'static str, i32)],
}

impl PageSetup {
    pub(crate) const NOTHING: Self = Self { page: "", given: "", shown: &[], before: &[], exits: &[] };
}

/// The preconditions of this page.
pub(crate) fn of(page: &str) -> &'static PageSetup {
    PAGE_SETUPS.iter().find(|setup| setup.page == page).unwrap_or(&PageSetup::NOTHING)
}

pub(crate) const PAGE_SETUPS: &[PageSetup] = &[README, RUN, DURABLE_FUNCTIONS, EXAMPLES, WORKERS, DISPATCH];

/// The page has two definitions with the same file name, one per section.
const README: PageSetup = PageSetup {
    page: "README.md",
    shown: &[("Serve", "greet.json"), ("A workflow", "greet.json")],
    ..PageSetup::NOTHING
};

/// The page starts with the command and shows its files in later sections.
const RUN: PageSetup = PageSetup {
    page: "docs/guides/run.md",
    given: r#"
cat > workflow.json <<'END'
{"$schema": "workflow-schema-v1.json", "id": "contact", "version": "1.0.0", "startAt": "Register", "states": {
  "Register": {"type": "task", "activity": "RegisterDevice", "input": {"id": "$.input.deviceId"}, "next": "Contact"},
  "Contact": {"type": "wait", "waitType": "externalEvent", "eventName": "FirstContact", "timeout": "P2D", "next": "Process"},
  "Process": {"type": "task", "activity": "ProcessEvents", "next": "Done"},
  "Done": {"type": "succeed"}}}
END"#,
    shown: &[("Mocks", "mock.json"), ("Events and control operations", "events.json")],
    ..PageSetup::NOTHING
};

/// A definition exists. The URLs are taken from the response to the start. The run has ended before it is purged.
const DURABLE_FUNCTIONS: PageSetup = PageSetup {
    page: "docs/reference/durable-functions.md",
    given: r#"
cat > onboarding.json <<'END'
{"$schema": "workflow-schema-v1.json", "id": "onboarding", "version": "1.0.0", "startAt": "Welcome", "states": {
  "Welcome": {"type": "task", "activity": "core.echo", "input": {"hello": "$.input.deviceId"}, "next": "Done"},
  "Done": {"type": "succeed"}}}
END
abide publish onboarding.json"#,
    before: &[
        (
            "curl \"$statusQueryGetUri\"",
            r#"
address() { sed "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/" "$printed"; }
statusQueryGetUri=$(address statusQueryGetUri)
purgeHistoryDeleteUri=$(address purgeHistoryDeleteUri)"#,
        ),
        (
            "curl -X DELETE",
            r#"until curl "$statusQueryGetUri" | grep -q '"runtimeStatus": *"Completed"'; do :; done"#,
        ),
    ],
    ..PageSetup::NOTHING
};

/// The page is about the folder it is in. Both runs fail, as their names and the page say.
const EXAMPLES: PageSetup = PageSetup {
    page: "examples/README.md",
    given: r#"cp -R "$repository/examples/." ."#,
    exits: &[
        ("abide run device-onboarding/workflow.json", 1),
        ("abide run tenant-provisioning/workflow.json", 1),
    ],
    ..PageSetup::NOTHING
};

/// The page is about the folder of one of the workers.
const WORKERS: PageSetup = PageSetup {
    page: "examples/workers/README.md",
    given: r#"cp -R "$repository/examples/workers/python/." ."#,
    ..PageSetup::NOTHING
};

/// The page is for readers in the root of the repository. It needs one worker of it.
const DISPATCH: PageSetup = PageSetup {
    page: "docs/reference/dispatch.md",
    given: r#"mkdir -p examples/workers && cp -R "$repository/examples/workers/python" examples/workers/"#,
    ..PageSetup::NOTHING
};
