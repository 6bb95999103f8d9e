//! Jinja templates as transformers renders them: Jinja 2 with Python's values and methods, in an immutable sandbox, with `generation`
//! blocks, loop controls, `tojson`, `raise_exception` and `strftime_now`.
//!
//! | file | holds |
//! |---|---|
//! | [`lexer`], [`parser`], [`ast`] | a template's text as a tree |
//! | [`value`], [`operators`], [`print`](mod@print) | Python's values, operators and printing |
//! | [`methods`], [`functions`], [`filters`], [`tested`], [`numbers`], [`json`], [`format`](mod@format) | what templates call |
//! | [`render`] | the tree with variables as text |
//!
//! Templates come from strangers. What one writes, how deep its parts are within each other and how many steps it takes are bounded.

mod ast;
mod filters;
mod format;
mod functions;
mod json;
mod lexer;
mod methods;
mod numbers;
mod operators;
mod parser;
mod print;
mod render;
mod tested;
#[cfg(test)]
mod tests;
mod value;

use std::ops::Range;
use std::thread;

use chrono::NaiveDate;
use minijinja::Value as RowValue;

/// Characters that stand where a marked part begins and ends. Unicode never assigns them.
pub(super) const MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];
/// Bytes of the stack on which templates are parsed, and rendered if they may call themselves.
const STACK: usize = 256 << 20;

/// An error of a template, with its place.
#[derive(Debug)]
pub(super) struct Error {
    pub message: String,
    /// From 1.
    pub line: usize,
}

/// A template.
pub(super) struct Template {
    tree: ast::Tree,
    date: NaiveDate,
}

/// The text that a template made.
pub(super) struct Rendered {
    pub text: String,
    /// The number of each message that a loop walked, and the bytes that the loop wrote for it.
    pub parts: Vec<(usize, Range<usize>)>,
}

impl Template {
    /// Parses a template, which takes `date` for today.
    ///
    /// # Errors
    /// Text that isn't a template's, and one with too much within each other.
    pub fn parse(source: &str, date: NaiveDate) -> Result<Self, Error> {
        let tree = on_a_stack(|| parser::parse(source))?;
        Ok(Self { tree, date })
    }

    /// Returns `true` if it marks what the assistant says.
    pub fn marks(&self) -> bool {
        self.tree.marks
    }

    /// Renders it with these variables, of which `messages` is the conversation.
    ///
    /// # Errors
    /// What the template refuses, and bounds that it exceeds.
    pub fn render(&self, variables: &[(&str, RowValue)]) -> Result<Rendered, Error> {
        let work = || {
            let mut converted = Vec::with_capacity(variables.len());
            for (name, variable) in variables {
                let value =
                    value::of_row(variable, 0).map_err(|message| Error { message, line: 1 })?;
                converted.push(((*name).to_owned(), value));
            }
            render::render(&self.tree, converted, self.date)
        };
        let rendered = if self.tree.recurs { on_a_stack(work) } else { work() }?;
        let render::Rendered { text, parts } = rendered;
        Ok(Rendered { text, parts })
    }
}

/// Runs `work` on a thread with a stack for deep nesting. Memory is taken only for the pages that are used.
fn on_a_stack<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| Error {
            message: format!("no thread can be started for it ({error})"),
            line: 1,
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
