//! Terminal styles that all commands share.

use anstyle::Style;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
