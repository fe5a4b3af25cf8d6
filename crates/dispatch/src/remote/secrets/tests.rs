//! Secrets from a folder and from the environment: what is given out, what never is, and what is told about it.

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
fn a_reference_is_one_field_and_survives_its_json() {
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
        let refused = SecretRef::read(&wrong).unwrap_err();
        assert!(!refused.to_string().contains("s3cret"), "{wrong}");
    }
}

#[tokio::test]
async fn a_file_is_read_anew_each_time_without_its_last_line_end() {
    let folder = TempDir::new().unwrap();
    let (path, secrets) = (folder.path().join("below/key"), secrets(&folder));
    std::fs::create_dir(folder.path().join("below")).unwrap();
    for (written, read) in
        [("one\n", "one"), ("two\r\n", "two"), ("three\n\n", "three\n"), (" four ", " four ")]
    {
        std::fs::write(&path, written).unwrap();
        assert_eq!(secrets.reveal(&file(&path)).await.unwrap().expose(), read.as_bytes());
    }
}

#[tokio::test]
async fn only_files_in_the_folders_that_are_configured_are_read() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (outside, link) = (elsewhere.path().join("key"), folder.path().join("link"));
    std::fs::write(&outside, "s3cret").unwrap();
    symlink(&outside, &link).unwrap();
    let dotted = folder.path().join("../").join(elsewhere.path().file_name().unwrap()).join("key");
    let sibling = PathBuf::from(format!("{}-more", folder.path().display()));
    let secrets = secrets(&folder);
    for path in [&outside, &link, &dotted, &sibling, folder.path(), Path::new("/etc/no-such-file")] {
        let refused = secrets.reveal(&file(path)).await.unwrap_err();
        assert!(matches!(refused, SecretError::NotAllowed { .. }), "{path:?}: {refused}");
    }
    let nothing_configured = SystemSecrets::default().reveal(&file(&link)).await.unwrap_err();
    assert!(matches!(nothing_configured, SecretError::NotAllowed { .. }));
    // A folder of links, as clusters mount secrets.
    let (data, mounted) = (folder.path().join("..data"), folder.path().join("mounted"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("mounted"), "inside").unwrap();
    symlink("..data/mounted", &mounted).unwrap();
    assert_eq!(secrets.reveal(&file(&mounted)).await.unwrap().expose(), b"inside");
}

#[tokio::test]
async fn a_secret_has_a_size() {
    let folder = TempDir::new().unwrap();
    let (path, secrets) = (folder.path().join("key"), secrets(&folder));
    std::fs::write(&path, "x".repeat(SECRET_BYTES_MAX) + "\n").unwrap();
    assert_eq!(secrets.reveal(&file(&path)).await.unwrap().expose().len(), SECRET_BYTES_MAX);
    for size in ["", "\n", &"x".repeat(SECRET_BYTES_MAX + 1), &"x".repeat(SECRET_BYTES_MAX * 2)] {
        std::fs::write(&path, size).unwrap();
        let refused = secrets.reveal(&file(&path)).await.unwrap_err();
        assert!(matches!(refused, SecretError::Size { .. }), "{}", size.len());
    }
}

#[tokio::test]
async fn variables_are_given_out_by_name_and_prefix() {
    // Whoever runs these tests sets it.
    let (name, value) = ("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
    let with =
        |prefix: &str| SystemSecrets::new(SecretsConfig { env_prefix: prefix.to_owned(), folders: vec![] });
    for prefix in ["", "CARGO_"] {
        let revealed = with(prefix).reveal(&reference(&format!("env:{name}"))).await.unwrap();
        assert_eq!(revealed.expose(), value.as_bytes());
    }
    let refused = with("ABIDE_").reveal(&reference(&format!("env:{name}"))).await.unwrap_err();
    assert!(matches!(refused, SecretError::NotAllowed { .. }));
    let missing = with("").reveal(&reference("env:NO_SUCH_VARIABLE_1F")).await.unwrap_err();
    assert!(matches!(missing, SecretError::NotSet { .. }));
}

#[tokio::test]
async fn a_file_that_is_away_may_come_back_and_the_rest_needs_people() {
    let folder = TempDir::new().unwrap();
    let away = secrets(&folder).reveal(&file(&folder.path().join("away"))).await.unwrap_err();
    let failure = Failure::from(away);
    assert_eq!(
        (failure.code.as_str(), failure.retryable, failure.outcome_unknown),
        ("SecretUnavailable", true, false)
    );
    assert!(failure.message.contains("/away"), "{failure}");
    let missing = SystemSecrets::default().reveal(&reference("env:NO_SUCH_VARIABLE_1F")).await.unwrap_err();
    assert!(!Failure::from(missing).retryable);
}

#[test]
fn a_value_is_not_shown() {
    assert_eq!(format!("{:?}", Secret::new(*b"s3cret")), "Secret(…)");
}
