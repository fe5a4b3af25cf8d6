//! What is told of a file that is not as it should be: what is wrong, which key, and where; never what stands there.
//!
//! A secret may have been written where a reference to one belongs, and what is told ends in logs.

use toml::de::Error;

/// The mistake, in one line.
pub(super) fn told(error: &Error, text: &str) -> String {
    // Without the text there is nothing to quote from; the keys are still named.
    let mut unquoted = error.clone();
    unquoted.set_input(None);
    let told = without_values(unquoted.to_string().trim_end());
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => {
            let line = before.split('\n').count();
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            format!("line {line}, column {column}: {told}")
        }
        None => told,
    }
}

/// Values of another type or of no known variant are quoted by those who read them.
fn without_values(told: &str) -> String {
    let told = told.replace('\n', ", ");
    for (begins, quote) in
        [("invalid type: string \"", '"'), ("invalid value: string \"", '"'), ("unknown variant `", '`')]
    {
        if let Some((before, rest)) = told.split_once(begins) {
            // What comes after the value: there may be quotes in it as well, none of them followed by this.
            let after = rest.rsplit_once(&format!("{quote}, expected")).map_or("", |(_, after)| after);
            let kind = begins.trim_end_matches(quote).trim_end();
            return format!("{before}{kind}, expected{after}");
        }
    }
    told
}
