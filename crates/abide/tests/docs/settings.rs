//! What pages take for granted: files, and what happens outside of the page. And what is not run.
//!
//! The fewer the better: a page that says everything needs nothing here.

/// Commands that are not run, by how they begin, and why.
pub(crate) const SKIPPED: &[(&str, &str)] = &[
    ("cargo build", "the command has been built: it is the one that is tested"),
    ("scripts/demo", "builds, and goes on until somebody stops it; what it runs has tests of its own"),
    ("scripts/test", "runs all tests, this one among them"),
    ("scripts/crash", "builds, takes minutes, and partly needs root: the rigs are run by themselves"),
];

/// Why a command is not run, if it is not.
pub(crate) fn skipped(command: &str) -> Option<&'static &'static str> {
    let begins = |prefix: &str| {
        let rest = command.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    SKIPPED.iter().find(|(prefix, _)| begins(prefix)).map(|(_, reason)| reason)
}

/// What a page takes for granted.
pub(crate) struct Setting {
    pub(crate) page: &'static str,
    /// What has been done before, for bash.
    pub(crate) given: &'static str,
    /// Files that the page shows without a mark: the only block of JSON in a section, and the file's name.
    pub(crate) shown: &'static [(&'static str, &'static str)],
    /// What happens before a command, by how it begins.
    pub(crate) before: &'static [(&'static str, &'static str)],
    /// Commands that do not succeed, by how they begin, where the page says so in words.
    pub(crate) exits: &'static [(&'static str, i32)],
}

impl Setting {
    pub(crate) const NOTHING: Self = Self { page: "", given: "", shown: &[], before: &[], exits: &[] };
}

/// What this page takes for granted.
pub(crate) fn of(page: &str) -> &'static Setting {
    SETTINGS.iter().find(|setting| setting.page == page).unwrap_or(&Setting::NOTHING)
}

pub(crate) const SETTINGS: &[Setting] = &[README, RUN, DURABLE_FUNCTIONS, EXAMPLES, WORKERS, DISPATCH];

/// Shows the definition below the commands that use it, and another one by the same name later.
const README: Setting = Setting {
    page: "README.md",
    shown: &[("Serve", "greet.json"), ("A workflow", "greet.json")],
    ..Setting::NOTHING
};

/// Begins with the command, and shows its files in the sections about them.
const RUN: Setting = Setting {
    page: "docs/guides/run.md",
    given: r#"
cat > workflow.json <<'END'
{"$schema": "workflow-schema-v1.json", "id": "contact", "version": "1.0.0", "startAt": "Register", "states": {
  "Register": {"type": "task", "activity": "RegisterDevice", "input": {"id": "$.input.deviceId"}, "next": "Contact"},
  "Contact": {"type": "wait", "waitType": "externalEvent", "eventName": "FirstContact", "timeout": "P2D", "next": "Process"},
  "Process": {"type": "task", "activity": "ProcessEvents", "next": "Done"},
  "Done": {"type": "succeed"}}}
END"#,
    shown: &[("Mocks", "mock.json"), ("Events and orders", "events.json")],
    ..Setting::NOTHING
};

/// There is a definition; the addresses are taken from the answer to the start; the run has ended when it is purged.
const DURABLE_FUNCTIONS: Setting = Setting {
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
    ..Setting::NOTHING
};

/// Is about the folder it is in. Both runs fail, as their names and the page say.
const EXAMPLES: Setting = Setting {
    page: "examples/README.md",
    given: r#"cp -R "$repository/examples/." ."#,
    exits: &[
        ("abide run device-onboarding/workflow.json", 1),
        ("abide run tenant-provisioning/workflow.json", 1),
    ],
    ..Setting::NOTHING
};

/// Is about the folder of one of the workers. What is called has to be heard of by then.
const WORKERS: Setting = Setting {
    page: "examples/workers/README.md",
    given: r#"cp -R "$repository/examples/workers/python/." ."#,
    ..Setting::NOTHING
};

/// Is read in the folder of the repository, of which it needs one worker.
const DISPATCH: Setting = Setting {
    page: "docs/reference/dispatch.md",
    given: r#"mkdir -p examples/workers && cp -R "$repository/examples/workers/python" examples/workers/"#,
    ..Setting::NOTHING
};
