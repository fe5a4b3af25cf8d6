//! Finds the line and column of a JSON pointer in a text.
//!
//! It does not parse the whole document: the text may be invalid after the place, and the scanner gives up where it
//! meets something it cannot read.

use abide_workflow::Finding;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceLocation {
    /// From 1.
    pub(crate) line: usize,
    /// From 1, in characters.
    pub(crate) column: usize,
    /// The line, trimmed and shortened.
    pub(crate) excerpt: String,
}

impl SourceLocation {
    /// The location of a finding: its position if it has one, otherwise that of its pointer.
    pub(crate) fn of_finding(text: &str, finding: &Finding) -> Option<Self> {
        let Some((line, column)) = finding.position else {
            return Self::of_pointer(text, &finding.pointer);
        };
        let line_text = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Some(Self { line, column, excerpt: excerpt(line_text, column) })
    }

    /// The location of the value a pointer names; for a member of an object, that of its key.
    pub(crate) fn of_pointer(text: &str, pointer: &str) -> Option<Self> {
        let mut scanner = JsonScanner { text, offset: 0 };
        scanner.skip_whitespace();
        let mut offset = scanner.offset;
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            offset = scanner.descend(&token)?;
        }
        Some(Self::from_offset(text, offset))
    }

    fn from_offset(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line_text = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        Self { line: before.matches('\n').count() + 1, column, excerpt: excerpt(line_text, column) }
    }
}

/// The trimmed line; of a long line, the part around the column.
fn excerpt(line: &str, column: usize) -> String {
    const CHARS_MAX: usize = 100;
    const BEFORE: usize = 30;
    if line.trim().chars().count() <= CHARS_MAX {
        return line.trim().to_owned();
    }
    let skipped = column.saturating_sub(BEFORE);
    let around: String = line.chars().skip(skipped).take(CHARS_MAX).collect();
    format!("{}{}…", if skipped > 0 { "…" } else { "" }, around.trim())
}

struct JsonScanner<'a> {
    text: &'a str,
    offset: usize,
}

impl JsonScanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn skip_whitespace(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.offset += 1;
        }
    }

    fn expect_byte(&mut self, byte: u8) -> Option<()> {
        self.skip_whitespace();
        (self.peek() == Some(byte)).then(|| self.offset += 1)
    }

    /// Moves to the member or element `token` of the current value and returns the offset of its key or value.
    fn descend(&mut self, token: &str) -> Option<usize> {
        self.skip_whitespace();
        match self.peek()? {
            b'{' => {
                self.offset += 1;
                loop {
                    self.skip_whitespace();
                    let key_at = self.offset;
                    let key = self.read_string()?;
                    self.expect_byte(b':')?;
                    self.skip_whitespace();
                    if key == token {
                        return Some(key_at);
                    }
                    self.skip_value()?;
                    self.expect_byte(b',')?;
                }
            }
            b'[' => {
                self.offset += 1;
                for _ in 0..token.parse::<usize>().ok()? {
                    self.skip_value()?;
                    self.expect_byte(b',')?;
                }
                self.skip_whitespace();
                Some(self.offset)
            }
            _ => None,
        }
    }

    /// Reads a string with its escapes.
    fn read_string(&mut self) -> Option<String> {
        let start = self.offset;
        if self.peek()? != b'"' {
            return None;
        }
        self.offset += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.offset += 2,
                _ => self.offset += 1,
            }
        }
        self.offset += 1;
        serde_json::from_str(self.text.get(start..self.offset)?).ok()
    }

    fn skip_value(&mut self) -> Option<()> {
        self.skip_whitespace();
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.read_string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.offset += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.offset += 1;
                }
                b',' | b':' if depth > 0 => self.offset += 1,
                byte if byte.is_ascii_whitespace() => self.offset += 1,
                _ => {
                    while self
                        .peek()
                        .is_some_and(|byte| !b",:]}".contains(&byte) && !byte.is_ascii_whitespace())
                    {
                        self.offset += 1;
                    }
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n  \"a\": {\"b/c\": [1, {\"x\": \"}\"}, 3]},\n  \"ä\": {\"d\": null}\n}";

    #[test]
    fn a_pointer_leads_to_its_line_and_column() {
        for (pointer, line, column) in [
            ("", 1, 1),
            ("/a", 2, 3),
            ("/a/b~1c", 2, 9),
            ("/a/b~1c/1/x", 2, 21),
            ("/a/b~1c/2", 2, 32),
            ("/ä/d", 3, 9),
        ] {
            let located = SourceLocation::of_pointer(TEXT, pointer).unwrap_or_else(|| panic!("{pointer}"));
            assert_eq!((located.line, located.column), (line, column), "{pointer}");
        }
        assert_eq!(SourceLocation::of_pointer(TEXT, "/ä/d").unwrap().excerpt, "\"ä\": {\"d\": null}");
    }

    #[test]
    fn a_missing_member_or_invalid_json_has_no_location() {
        for (text, pointer) in
            [(TEXT, "/b"), (TEXT, "/a/b~1c/9"), ("{", "/a"), ("{\"a\" 1}", "/a/b"), ("\"\\", "/a")]
        {
            assert_eq!(SourceLocation::of_pointer(text, pointer), None, "{text} {pointer}");
        }
    }
}
