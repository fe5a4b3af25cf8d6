//! Compares the output that a page shows with the real output.
//!
//! Several blanks count as one, except at the start of a line: the columns of a table are as wide as their contents.

/// Stands for any text in a shown line.
const ANYTHING: char = '…';

/// The first shown line that was not printed after the lines before it. A blank line, or one of `…` alone, stands for
/// any lines.
pub(crate) fn first_missing<'a>(shown: &'a str, printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines();
    shown
        .lines()
        .filter(|line| !line.trim().trim_matches(ANYTHING).is_empty())
        .find(|line| !printed.any(|candidate| fits(&narrow(line), &narrow(candidate))))
}

/// The line with several blanks reduced to one.
fn narrow(line: &str) -> String {
    let indented = line.len() - line.trim_start().len();
    let words: Vec<&str> = line.split_whitespace().collect();
    format!("{}{}", " ".repeat(indented), words.join(" "))
}

/// True if the printed line matches the shown one.
fn fits(shown: &str, printed: &str) -> bool {
    let Some((first, rest)) = shown.split_once(ANYTHING) else { return shown == printed };
    let Some(mut left) = printed.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split(ANYTHING).collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(last)
}

#[test]
fn a_line_matches_literally_or_with_any_text_for_the_mark() {
    assert!(fits("as it is", "as it is"));
    assert!(!fits("as it is", "as it is not"));
    assert!(!fits("it is", "as it is"));
    assert!(fits("after … ms: …", "after 12 ms: done"));
    assert!(fits("after … ms: …", "after 12 ms: "));
    assert!(!fits("after … ms: …", "after 12 s: done"));
    assert!(fits("… of 3", "1 of 3"));
    assert!(!fits("… of 3", "1 of 3 and more"));
    assert!(!fits("ab…ba", "aba"), "no character is matched twice");
}

#[test]
fn lines_must_be_printed_in_order() {
    let printed = "one\ntwo  \n\nthree\n";
    assert_eq!(first_missing("one\nthree\n", printed), None);
    assert_eq!(first_missing("one\n  …\n\nthree\n", printed), None);
    assert_eq!(first_missing("two\n", printed), None, "blanks at the end do not count");
    assert_eq!(first_missing("a  …    2\n", "a 1 2\n"), None, "the width of a column does not count");
    assert_eq!(first_missing("  a\n", "a\n"), Some("  a"), "blanks at the start count");
    assert_eq!(first_missing("three\none\n", printed), Some("one"));
    assert_eq!(first_missing("one\none\n", printed), Some("one"), "printed once, shown twice");
    assert_eq!(first_missing("four\n", printed), Some("four"));
}
