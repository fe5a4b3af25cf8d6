//! Secrets from a folder and from the environment: those that are returned, those that never are, and the errors.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn reference(text: &str) -> SecretRef {
    SecretRef::parse(text).unwrap()
}

fn file(path: &Path) -> SecretRef {
    reference(&format!("file:{}", path.display()))
}

fn secrets(folder: &TempDir) -> SystemSecrets {
    SystemSecrets::new(SecretsConfig { folders: vec![folder.path().to_owned()], ..SecretsConfig::default() })
}

#[test]
fn a_reference_is_one_field_and_round_trips_through_json() {
    for text in ["env:TOKEN", "env:_a1", "file:/run/secrets/key"] {
        let read = SecretRef::read(&json!({"secretRef": text})).unwrap();
        assert_eq!(read.to_string(), text);
        assert_eq!(SecretRef::read(&read.to_json()), Ok(read));
    }
    for wrong in [
        json!("s3cret"),
        json!(null),
        json!({}),
        json!({"secretRef": "s3cret"}),
        json!({"secretRef": ""}),
        json!({"secretRef": "env:"}),
        json!({"secretRef": "env:A B"}),
        json!({"secretRef": "env:A=B"}),
        json!({"secretRef": "file:relative"}),
        json!({"secretRef": "file:"}),
        json!({"secretRef": "file:/a\u{0}b"}),
        json!({"secretRef": "keyvault://a/b"}),
        json!({"secretRef": "env:A", "more": 1}),
        json!({"secretRef": 7}),
        json!({"secretRef": format!("file:/{}", "a".repeat(REFERENCE_BYTES_MAX))}),
    ] {
        let error = SecretRef::read(&wrong).unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{wrong}");
    }
}

#[tokio::test]
async fn a_file_is_read_again_each_time_without_its_last_line_end() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("below/key");
    let secrets = secrets(&folder);
    std::fs::create_dir(folder.path().join("below")).unwrap();
    for (written, read) in
        [("one\n", "one"), ("two\r\n", "two"), ("three\n\n", "three\n"), (" four ", " four ")]
    {
        std::fs::write(&path, written).unwrap();
        assert_eq!(secrets.reveal(&file(&path)).await.unwrap().expose(), read.as_bytes());
    }
}

#[tokio::test]
async fn only_files_in_the_configured_folders_are_read() {
    let folder = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let outside = elsewhere.path().join("key");
    let link = folder.path().join("link");
    std::fs::write(&outside, "s3cret").unwrap();
    symlink(&outside, &link).unwrap();
    let dotted = folder.path().join("../").join(elsewhere.path().file_name().unwrap()).join("key");
    let sibling = PathBuf::from(format!("{}-more", folder.path().display()));
    let secrets = secrets(&folder);
    for path in [&outside, &link, &dotted, &sibling, folder.path(), Path::new("/etc/no-such-file")] {
        let error = secrets.reveal(&file(path)).await.unwrap_err();
        assert!(matches!(error, SecretError::NotAllowed { .. }), "{path:?}: {error}");
    }
    let nothing_configured = SystemSecrets::default().reveal(&file(&link)).await.unwrap_err();
    assert!(matches!(nothing_configured, SecretError::NotAllowed { .. }));
    // A folder of links, as clusters mount secrets.
    let data = folder.path().join("..data");
    let mounted = folder.path().join("mounted");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("mounted"), "inside").unwrap();
    symlink("..data/mounted", &mounted).unwrap();
    assert_eq!(secrets.reveal(&file(&mounted)).await.unwrap().expose(), b"inside");
}

#[tokio::test]
async fn the_size_of_a_secret_is_limited() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("key");
    let secrets = secrets(&folder);
    std::fs::write(&path, "x".repeat(SECRET_BYTES_MAX) + "\n").unwrap();
    assert_eq!(secrets.reveal(&file(&path)).await.unwrap().expose().len(), SECRET_BYTES_MAX);
    for size in ["", "\n", &"x".repeat(SECRET_BYTES_MAX + 1), &"x".repeat(SECRET_BYTES_MAX * 2)] {
        std::fs::write(&path, size).unwrap();
        let error = secrets.reveal(&file(&path)).await.unwrap_err();
        assert!(matches!(error, SecretError::Size { .. }), "{}", size.len());
    }
}

#[tokio::test]
async fn variables_are_read_by_name_if_the_prefix_allows_it() {
    // Cargo sets this variable for tests.
    let name = "CARGO_MANIFEST_DIR";
    let value = env!("CARGO_MANIFEST_DIR");
    let with =
        |prefix: &str| SystemSecrets::new(SecretsConfig { env_prefix: prefix.to_owned(), folders: vec![] });
    for prefix in ["", "CARGO_"] {
        let revealed = with(prefix).reveal(&reference(&format!("env:{name}"))).await.unwrap();
        assert_eq!(revealed.expose(), value.as_bytes());
    }
    let error = with("ABIDE_").reveal(&reference(&format!("env:{name}"))).await.unwrap_err();
    assert!(matches!(error, SecretError::NotAllowed { .. }));
    let missing = with("").reveal(&reference("env:NO_SUCH_VARIABLE_1F")).await.unwrap_err();
    assert!(matches!(missing, SecretError::NotSet { .. }));
}

#[tokio::test]
async fn only_an_unreadable_file_is_retryable() {
    let folder = TempDir::new().unwrap();
    let unreadable = secrets(&folder).reveal(&file(&folder.path().join("away"))).await.unwrap_err();
    let failure = CallFailure::from(unreadable);
    assert_eq!(
        (failure.code.as_str(), failure.retryable, failure.outcome_unknown),
        ("SecretUnavailable", true, false)
    );
    assert!(failure.message.contains("/away"), "{failure}");
    let missing = SystemSecrets::default().reveal(&reference("env:NO_SUCH_VARIABLE_1F")).await.unwrap_err();
    assert!(!CallFailure::from(missing).retryable);
}

#[test]
fn debug_output_does_not_show_the_value() {
    assert_eq!(format!("{:?}", Secret::new(*b"s3cret")), "Secret(…)");
}
