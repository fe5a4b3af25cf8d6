//! Bounds the cost of a path by its text, before it is parsed. It does not evaluate the path.
//!
//! RFC 9535 allows queries whose cost is exponential in their length (`$[*,*][*,*]…`) or a high power of the data
//! (`$..*..*`). These bounds reject at publication what is costly on nearly all data. What is costly on hostile data
//! only, the budget of the evaluation stops.

use crate::limits::definition::{
    EXPRESSION_DEPTH_MAX, PATH_CHARS_MAX, PATH_COMMAS_MAX, PATH_DESCENDANTS_MAX,
};

/// Checks all bounds; the error describes the first one that the path breaks.
pub(super) fn check(path: &str) -> Result<(), String> {
    if path.chars().count() > PATH_CHARS_MAX {
        return Err(format!("it has more than {PATH_CHARS_MAX} characters"));
    }
    let bare = without_strings(path);
    let mut depth = 0_usize;
    let mut deepest = 0;
    for c in bare.chars() {
        match c {
            '[' | '(' | '!' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > EXPRESSION_DEPTH_MAX {
        return Err(format!(
            "brackets and negations are nested more than {EXPRESSION_DEPTH_MAX} levels deep"
        ));
    }
    if bare.matches("..").count() > PATH_DESCENDANTS_MAX {
        return Err(format!("it has more than {PATH_DESCENDANTS_MAX} descendant segment (..)"));
    }
    if bare.matches(',').count() > PATH_COMMAS_MAX {
        return Err(format!("it has more than {PATH_COMMAS_MAX} commas"));
    }
    if ["match(", "search("].iter().any(|function| bare.replace(' ', "").contains(function)) {
        // Each node would compile a pattern, and data could choose it.
        return Err("match() and search() are not supported; use the operator matches of a choice".to_owned());
    }
    for inner in absolute_queries(&bare) {
        if inner.contains(['*', '?', ':']) || inner.contains("..") {
            return Err(
                "inside a filter, a path that starts with $ may have only names and indexes".to_owned()
            );
        }
    }
    Ok(())
}

/// The queries inside filters that start at `$`: from each further `$` to the end of its segments.
fn absolute_queries(bare: &str) -> impl Iterator<Item = &str> {
    let starts = bare.match_indices('$').skip(1);
    starts.filter_map(|(start, _)| {
        let tail = bare.get(start..)?;
        let mut open = 0_usize;
        let mut end = tail.len();
        for (at, c) in tail.char_indices() {
            match c {
                '[' => open += 1,
                ']' if open > 0 => open -= 1,
                ']' | ')' | ',' | '<' | '>' | '=' | '!' | '&' | '|' if open == 0 => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        tail.get(..end)
    })
}

/// The text with every quoted string emptied, so that the characters in strings do not count.
fn without_strings(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for c in text.chars() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => {
                quote = None;
                bare.push(c);
            }
            Some(_) => {}
            None => {
                if c == '\'' || c == '"' {
                    quote = Some(c);
                }
                bare.push(c);
            }
        }
    }
    bare
}
