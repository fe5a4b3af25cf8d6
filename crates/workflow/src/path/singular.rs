//! Parses the singular prefix of a path, which leads to one place: `$`, then names and indexes. The rest of the path is
//! read by `query_parser`.
//!
//! It accepts every spelling of RFC 9535 (`.name`, `['name']`, `["name"]`, `[3]`, blanks and escapes included), because
//! a singular path stands for its value and any other query for an array.

/// One step of a singular path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// A member of an object.
    Name(String),
    /// An element of an array; negative counts from the end.
    Index(i64),
}

/// The blank space of RFC 9535.
pub(super) const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

/// The longest singular prefix and the text after it; `None` if the text does not start with `$`.
pub(super) fn singular_prefix(text: &str) -> Option<(Vec<Segment>, &str)> {
    let mut rest = text.strip_prefix('$')?;
    let mut segments = Vec::new();
    while let Some((segment, after)) = parse_segment(rest) {
        segments.push(segment);
        rest = after;
    }
    Some((segments, rest))
}

fn parse_segment(text: &str) -> Option<(Segment, &str)> {
    let text = text.trim_start_matches(BLANKS);
    if let Some(rest) = text.strip_prefix('.') {
        let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric() || !c.is_ascii();
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at_checked(end)?;
        let starts_well = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
        // A name directly before `(` would be a function call; the full parser reports it.
        return (starts_well && !rest.starts_with('(')).then(|| (Segment::Name(name.to_owned()), rest));
    }
    let inside = text.strip_prefix('[')?.trim_start_matches(BLANKS);
    if inside.starts_with(['\'', '"']) {
        let (name, rest) = parse_quoted_name(inside)?;
        let rest = rest.trim_start_matches(BLANKS).strip_prefix(']')?;
        return Some((Segment::Name(name), rest));
    }
    let (number, rest) = inside.split_once(']')?;
    let number = number.trim_end_matches(BLANKS);
    let plain =
        number == "0" || number.strip_prefix('-').unwrap_or(number).starts_with(|c| ('1'..='9').contains(&c));
    let index = number.parse().ok().filter(|_| plain)?;
    Some((Segment::Index(index), rest))
}

/// Parses a quoted name, with JSON's escapes and the escaped quote, and returns it with the text that follows.
pub(super) fn parse_quoted_name(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next()?;
    let mut json = String::from("\"");
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                '\'' => json.push('\''),
                escaped => json.extend(['\\', escaped]),
            },
            _ if c == quote => {
                json.push('"');
                return Some((serde_json::from_str(&json).ok()?, text.get(at + 1..)?));
            }
            '"' => json.push_str("\\\""),
            _ => json.push(c),
        }
    }
    None
}
