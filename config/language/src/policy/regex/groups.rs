//! The number of capture groups in an expression.

use std::convert::Infallible;

use regex_syntax::ast::{self, Ast, Visitor};

/// The index of the last group.
pub(super) fn count(ast: &Ast) -> u32 {
    // The visitor cannot fail; it counts.
    ast::visit(ast, Groups(0)).unwrap_or_default()
}

struct Groups(u32);

impl Visitor for Groups {
    type Output = u32;
    type Err = Infallible;

    fn finish(self) -> Result<u32, Infallible> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        if let Ast::Group(group) = ast {
            self.0 = self.0.max(group.capture_index().unwrap_or_default());
        }
        Ok(())
    }
}
