//! The leading part of a path that leads to one place: `$`, then names and indexes.
//!
//! Reads only the plain spellings (`.name`, `['name']`, `["name"]`, `[3]`); an unusual one ends the prefix and is left to the
//! full query, which means the same.

/// One step of a singular path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// A member of an object.
    Name(String),
    /// An element of an array; negative counts from the end.
    Index(i64),
}

/// The longest singular prefix and the text after it; `None` if the text does not start with `$`.
pub(super) fn prefix(text: &str) -> Option<(Vec<Segment>, &str)> {
    let mut rest = text.strip_prefix('$')?;
    let mut segments = Vec::new();
    while let Some((segment, after)) = segment(rest) {
        segments.push(segment);
        rest = after;
    }
    Some((segments, rest))
}

fn segment(text: &str) -> Option<(Segment, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric() || !c.is_ascii();
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at_checked(end)?;
        let starts_well = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
        // A name directly before `(` would be a function call; the full parser will say what it thinks of it.
        return (starts_well && !rest.starts_with('(')).then(|| (Segment::Name(name.to_owned()), rest));
    }
    let inside = text.strip_prefix('[')?;
    for quote in ['\'', '"'] {
        if let Some(rest) = inside.strip_prefix(quote) {
            let (name, rest) = rest.split_once(quote)?;
            let rest = rest.strip_prefix(']')?;
            return (!name.contains('\\')).then(|| (Segment::Name(name.to_owned()), rest));
        }
    }
    let (number, rest) = inside.split_once(']')?;
    let plain =
        number == "0" || number.strip_prefix('-').unwrap_or(number).starts_with(|c| ('1'..='9').contains(&c));
    let index = number.parse().ok().filter(|_| plain)?;
    Some((Segment::Index(index), rest))
}
