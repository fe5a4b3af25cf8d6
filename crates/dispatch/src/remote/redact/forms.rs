//! The forms of a secret that are looked for: as it is, in other letter case, in hexadecimal and in base64.
//!
//! Encodings in which any character may or may not be escaped have no fixed form; `views` undoes them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Bytes that show a secret. ASCII letters match in either case.
pub(super) struct Form {
    pub(super) bytes: Vec<u8>,
    /// The characters before and after belong to it too, if they are digits of base64: they share bits with it.
    pub(super) is_base64: bool,
}

/// The forms of one secret.
pub(super) fn of_secret(secret: &str) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    let mut add = |bytes: Vec<u8>, is_base64| {
        let known = forms.iter().any(|form| form.bytes.eq_ignore_ascii_case(&bytes));
        if bytes.len() >= super::BYTES_MIN && !known {
            forms.push(Form { bytes, is_base64 });
        }
    };
    add(secret.as_bytes().to_vec(), false);
    // A service may have trimmed it, or spelled its spaces as forms on web pages do.
    add(secret.trim().as_bytes().to_vec(), false);
    add(secret.replace(' ', "+").into_bytes(), false);
    // Letters outside ASCII.
    add(secret.to_lowercase().into_bytes(), false);
    add(secret.to_uppercase().into_bytes(), false);
    let hexadecimal: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    add(hexadecimal.into_bytes(), false);
    for bytes_before in 0..3 {
        let standard = base64_inside(secret.as_bytes(), bytes_before);
        add(standard.replace('+', "-").replace('/', "_").into_bytes(), true);
        add(standard.into_bytes(), true);
    }
    forms
}

/// The digits of base64 that a secret has to itself when so many bytes are before it: a user name, say.
fn base64_inside(secret: &[u8], bytes_before: usize) -> String {
    let bytes = [vec![0; bytes_before].as_slice(), secret].concat();
    let first = (bytes_before * 8).div_ceil(6);
    let end = bytes.len() * 8 / 6;
    STANDARD_NO_PAD.encode(&bytes).get(first..end).unwrap_or_default().to_owned()
}
