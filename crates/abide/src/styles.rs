//! How texts are set apart on a terminal, the same in every command.

use anstyle::Style;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
