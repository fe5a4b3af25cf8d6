//! Where a JSON pointer is in a text: line, column and the line itself.
//!
//! A scanner over text that may be broken further down: it stops looking where it no longer understands.

use abide_workflow::Finding;

/// A place in a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// From 1.
    pub(crate) line: usize,
    /// From 1, in characters.
    pub(crate) column: usize,
    /// The line, trimmed and cut.
    pub(crate) excerpt: String,
}

impl Located {
    /// Where a finding is: at its own position, or where its pointer leads.
    pub(crate) fn of(text: &str, finding: &Finding) -> Option<Self> {
        let Some((line, column)) = finding.position else {
            return Self::find(text, &finding.pointer);
        };
        let line_text = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Some(Self { line, column, excerpt: excerpt(line_text, column) })
    }

    /// Finds the value a pointer names; for a member of an object, its key.
    pub(crate) fn find(text: &str, pointer: &str) -> Option<Self> {
        let mut scanner = Scanner { text, at: 0 };
        scanner.space();
        let mut place = scanner.at;
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            place = scanner.descend(&token)?;
        }
        Some(Self::at(text, place))
    }

    fn at(text: &str, place: usize) -> Self {
        let before = text.get(..place).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line_text = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        Self { line: before.matches('\n').count() + 1, column, excerpt: excerpt(line_text, column) }
    }
}

/// The line, trimmed; of a long one, what is around the column.
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

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Moves into the member or element `token` of the value here; answers where its key or value begins.
    fn descend(&mut self, token: &str) -> Option<usize> {
        self.space();
        match self.peek()? {
            b'{' => {
                self.at += 1;
                loop {
                    self.space();
                    let key_at = self.at;
                    let key = self.string()?;
                    self.eat(b':')?;
                    self.space();
                    if key == token {
                        return Some(key_at);
                    }
                    self.skip()?;
                    self.eat(b',')?;
                }
            }
            b'[' => {
                self.at += 1;
                for _ in 0..token.parse::<usize>().ok()? {
                    self.skip()?;
                    self.eat(b',')?;
                }
                self.space();
                Some(self.at)
            }
            _ => None,
        }
    }

    /// Reads a string with its escapes.
    fn string(&mut self) -> Option<String> {
        let start = self.at;
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        serde_json::from_str(self.text.get(start..self.at)?).ok()
    }

    /// Passes over one value.
    fn skip(&mut self) -> Option<()> {
        self.space();
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => self.at += 1,
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => {
                    while self
                        .peek()
                        .is_some_and(|byte| !b",:]}".contains(&byte) && !byte.is_ascii_whitespace())
                    {
                        self.at += 1;
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
            let located = Located::find(TEXT, pointer).unwrap_or_else(|| panic!("{pointer}"));
            assert_eq!((located.line, located.column), (line, column), "{pointer}");
        }
        assert_eq!(Located::find(TEXT, "/ä/d").unwrap().excerpt, "\"ä\": {\"d\": null}");
    }

    #[test]
    fn what_is_not_there_or_not_json_is_not_found() {
        for (text, pointer) in
            [(TEXT, "/b"), (TEXT, "/a/b~1c/9"), ("{", "/a"), ("{\"a\" 1}", "/a/b"), ("\"\\", "/a")]
        {
            assert_eq!(Located::find(text, pointer), None, "{text} {pointer}");
        }
    }
}
