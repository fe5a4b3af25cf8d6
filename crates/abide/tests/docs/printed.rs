//! Whether what a page shows is what was printed.
//!
//! Blanks are counted as one, but for those that a line begins with: the columns of a table are as wide as what is in them.

/// What stands for anything in a line that is shown.
const ANYTHING: char = '…';

/// The first line shown that was not printed after those before it. A line of nothing but `…` stands for any lines, and so does a blank one.
pub(crate) fn first_missing<'a>(shown: &'a str, printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines();
    shown
        .lines()
        .filter(|line| !line.trim().trim_matches(ANYTHING).is_empty())
        .find(|line| !printed.any(|candidate| fits(&narrow(line), &narrow(candidate))))
}

/// A line with one blank for several.
fn narrow(line: &str) -> String {
    let indented = line.len() - line.trim_start().len();
    let words: Vec<&str> = line.split_whitespace().collect();
    format!("{}{}", " ".repeat(indented), words.join(" "))
}

/// Whether a line is as it is shown.
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
fn lines_fit_as_they_stand_and_with_anything_between() {
    assert!(fits("as it is", "as it is"));
    assert!(!fits("as it is", "as it is not"));
    assert!(!fits("it is", "as it is"));
    assert!(fits("after … ms: …", "after 12 ms: done"));
    assert!(fits("after … ms: …", "after 12 ms: "));
    assert!(!fits("after … ms: …", "after 12 s: done"));
    assert!(fits("… of 3", "1 of 3"));
    assert!(!fits("… of 3", "1 of 3 and more"));
    assert!(!fits("ab…ba", "aba"), "nothing is counted twice");
}

#[test]
fn lines_are_looked_for_in_order() {
    let printed = "one\ntwo  \n\nthree\n";
    assert_eq!(first_missing("one\nthree\n", printed), None);
    assert_eq!(first_missing("one\n  …\n\nthree\n", printed), None);
    assert_eq!(first_missing("two\n", printed), None, "blanks at the end are not seen");
    assert_eq!(first_missing("a  …    2\n", "a 1 2\n"), None, "as wide as what is in them");
    assert_eq!(first_missing("  a\n", "a\n"), Some("  a"), "what it begins with is seen");
    assert_eq!(first_missing("three\none\n", printed), Some("one"));
    assert_eq!(first_missing("one\none\n", printed), Some("one"), "printed once, shown twice");
    assert_eq!(first_missing("four\n", printed), Some("four"));
}
