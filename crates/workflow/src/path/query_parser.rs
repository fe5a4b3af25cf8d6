//! Reads the part of a path after its singular prefix into a [`Query`]. It does not decide what is a JSONPath: the
//! library has accepted the text before, so what cannot be read here is rejected without saying why.

use serde_json::Value;

use super::absolute::{AbsoluteValue, split_root};
use super::query::{Comparison, Operand, Query, QuerySegment, Selector, Start, Test};
use super::singular::{BLANKS, parse_quoted_name};

/// Reads segments; `absolute` gets the values that filters refer to by `$`.
pub(super) fn parse_segments(text: &str, absolute: &mut Vec<AbsoluteValue>) -> Option<Vec<QuerySegment>> {
    let mut parser = QueryParser { rest: text, absolute };
    let segments = parser.segments()?;
    parser.rest.trim_matches(BLANKS).is_empty().then_some(segments)
}

struct QueryParser<'t, 'a> {
    rest: &'t str,
    absolute: &'a mut Vec<AbsoluteValue>,
}

impl<'t> QueryParser<'t, '_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(BLANKS);
    }

    /// Takes `token` if it comes next.
    fn take(&mut self, token: &str) -> bool {
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Takes `token` if it comes next, after blanks; else the blanks stay.
    fn take_after_blanks(&mut self, token: &str) -> bool {
        let after = self.rest.trim_start_matches(BLANKS).strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn segments(&mut self) -> Option<Vec<QuerySegment>> {
        let mut segments = Vec::new();
        loop {
            let (descends, selectors) = if self.take("..") {
                (true, if self.take("[") { self.selectors()? } else { vec![self.name_or_wildcard()?] })
            } else if self.take_after_blanks("[") {
                (false, self.selectors()?)
            } else if self.take_after_blanks(".") {
                (false, vec![self.name_or_wildcard()?])
            } else {
                return Some(segments);
            };
            segments.push(QuerySegment { descends, selectors });
        }
    }

    fn name_or_wildcard(&mut self) -> Option<Selector> {
        if self.take("*") {
            return Some(Selector::Wildcard);
        }
        let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric() || !c.is_ascii();
        let name = self.take_while(is_name);
        (!name.is_empty()).then(|| Selector::Name(name.to_owned()))
    }

    /// The selectors after a `[`, with its `]`.
    fn selectors(&mut self) -> Option<Vec<Selector>> {
        let mut selectors = Vec::new();
        loop {
            self.skip_blanks();
            selectors.push(self.selector()?);
            if self.take_after_blanks("]") {
                return Some(selectors);
            }
            if !self.take_after_blanks(",") {
                return None;
            }
        }
    }

    fn selector(&mut self) -> Option<Selector> {
        if self.take("*") {
            return Some(Selector::Wildcard);
        }
        if self.take("?") {
            self.skip_blanks();
            return Some(Selector::Filter(self.any_of()?));
        }
        if self.rest.starts_with(['\'', '"']) {
            return Some(Selector::Name(self.quoted()?));
        }
        let start = self.integer()?;
        if !self.take_after_blanks(":") {
            return start.map(Selector::Index);
        }
        self.skip_blanks();
        let end = self.integer()?;
        let mut step = None;
        if self.take_after_blanks(":") {
            self.skip_blanks();
            step = self.integer()?;
        }
        Some(Selector::Slice { start, end, step: step.unwrap_or(1) })
    }

    /// An integer, or `Some(None)` if none comes next.
    fn integer(&mut self) -> Option<Option<i64>> {
        match self.take_while(|c| c == '-' || c.is_ascii_digit()) {
            "" => Some(None),
            number => Some(Some(number.parse().ok()?)),
        }
    }

    fn quoted(&mut self) -> Option<String> {
        let (text, rest) = parse_quoted_name(self.rest)?;
        self.rest = rest;
        Some(text)
    }

    fn any_of(&mut self) -> Option<Test> {
        let mut any = vec![self.all_of()?];
        while self.take_after_blanks("||") {
            self.skip_blanks();
            any.push(self.all_of()?);
        }
        Some(if any.len() == 1 { any.remove(0) } else { Test::Or(any) })
    }

    fn all_of(&mut self) -> Option<Test> {
        let mut all = vec![self.test()?];
        while self.take_after_blanks("&&") {
            self.skip_blanks();
            all.push(self.test()?);
        }
        Some(if all.len() == 1 { all.remove(0) } else { Test::And(all) })
    }

    fn test(&mut self) -> Option<Test> {
        if self.take("!") {
            self.skip_blanks();
            let negated = if self.take("(") { self.in_parentheses()? } else { Test::Exists(self.query()?) };
            return Some(Test::Not(Box::new(negated)));
        }
        if self.take("(") {
            return self.in_parentheses();
        }
        let left = self.operand()?;
        match self.comparison() {
            Some(comparison) => {
                self.skip_blanks();
                Some(Test::Compare { left, comparison, right: self.operand()? })
            }
            // Without a comparison only a query is a test: it asks whether it selects anything.
            None => match left {
                Operand::ValueOf(query) => Some(Test::Exists(query)),
                _ => None,
            },
        }
    }

    fn in_parentheses(&mut self) -> Option<Test> {
        self.skip_blanks();
        let test = self.any_of()?;
        self.take_after_blanks(")").then_some(test)
    }

    fn comparison(&mut self) -> Option<Comparison> {
        const COMPARISONS: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let taken = COMPARISONS.into_iter().find(|(token, _)| self.take_after_blanks(token));
        taken.map(|(_, comparison)| comparison)
    }

    fn operand(&mut self) -> Option<Operand> {
        match self.rest.chars().next()? {
            '\'' | '"' => Some(Operand::Literal(Value::String(self.quoted()?))),
            '@' | '$' => Some(Operand::ValueOf(self.query()?)),
            c if c == '-' || c.is_ascii_digit() => {
                let number =
                    self.take_while(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E'));
                Some(Operand::Literal(Value::Number(number.parse().ok()?)))
            }
            _ => self.word(),
        }
    }

    /// `true`, `false`, `null`, or a function with its argument.
    fn word(&mut self) -> Option<Operand> {
        let word = self.take_while(|c| c == '_' || c.is_ascii_alphanumeric());
        match word {
            "true" => return Some(Operand::Literal(Value::Bool(true))),
            "false" => return Some(Operand::Literal(Value::Bool(false))),
            "null" => return Some(Operand::Literal(Value::Null)),
            _ => {}
        }
        if !self.take("(") {
            return None;
        }
        self.skip_blanks();
        let operand = match word {
            "length" => Operand::Length(Box::new(self.operand()?)),
            "count" => Operand::Count(self.query()?),
            "value" => Operand::ValueOf(self.query()?),
            _ => return None,
        };
        self.take_after_blanks(")").then_some(operand)
    }

    /// A query inside a filter.
    fn query(&mut self) -> Option<Query> {
        if self.take("@") {
            return Some(Query { start: Start::Current, segments: self.segments()? });
        }
        if !self.take("$") {
            return None;
        }
        let (value, segments) = split_root(self.segments()?);
        let known = self.absolute.iter().position(|known| *known == value);
        let position = known.unwrap_or_else(|| {
            self.absolute.push(value);
            self.absolute.len() - 1
        });
        Some(Query { start: Start::Absolute(position), segments })
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }
}
