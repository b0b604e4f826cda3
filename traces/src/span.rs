//! Spans as data.

use std::time::SystemTime;

/// The identity of a span: its trace, and its own id. Neither is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The id of the trace.
    pub trace_id: u128,
    /// The id of the span.
    pub span_id: u64,
}

impl SpanContext {
    /// The root span of a new trace.
    pub fn new_root() -> Self {
        Self { trace_id: fastrand::u128(1..), span_id: fastrand::u64(1..) }
    }

    /// A new span of the same trace.
    #[must_use]
    pub fn new_child(self) -> Self {
        Self { trace_id: self.trace_id, span_id: fastrand::u64(1..) }
    }
}

/// The role of a span in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work of this process.
    Internal,
    /// A message to another process, until its answer.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// A list of texts.
    Texts(Vec<String>),
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for AttributeValue {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedSpan {
    /// Its identity.
    pub context: SpanContext,
    /// The id of its parent, in the same trace; none for the root.
    pub parent: Option<u64>,
    /// The spans of other traces to which it belongs, too.
    pub links: Vec<SpanContext>,
    /// Its name, of which there are few.
    pub name: &'static str,
    /// Its role.
    pub kind: SpanKind,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// What else is known of it, by key.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Why it failed; none if it did not.
    pub error: Option<String>,
}
