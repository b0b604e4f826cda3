//! A table of the policy language, made from YAML. Copied values keep their spots in the text, even under
//! another key.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use crate::table::{FindingReported, Table, Value};

/// A table of the policy language.
#[derive(Debug, Default)]
pub(super) struct Made<'a>(DeTable<'a>);

impl<'a> Made<'a> {
    /// Copies the value of the YAML key `theirs`, if it is given, to the policy key `ours`.
    pub(super) fn copy(&mut self, from: &mut Table<'a>, theirs: &'static str, ours: &'static str) {
        if let Some((key, value)) = from.entry(theirs) {
            self.0.insert(Spanned::new(key.span(), ours.into()), value.clone());
        }
    }

    /// Puts `value` with the span `at` under `key`.
    pub(super) fn put(&mut self, key: &'static str, at: Range<usize>, value: DeValue<'a>) {
        self.0.insert(Spanned::new(at.clone(), key.into()), Spanned::new(at, value));
    }

    /// Puts the result of `make` for the table `value` under `key`. Any other value is copied, so that the
    /// reader reports it.
    pub(super) fn put_table(
        &mut self,
        key: &'static str,
        value: Value<'a>,
        make: impl FnOnce(Value<'a>) -> Result<Self, FindingReported>,
    ) -> Result<(), FindingReported> {
        let made = if value.is_table() {
            DeValue::Table(make(value)?.into_table())
        } else {
            value.written().get_ref().clone()
        };
        self.put(key, value.written().span(), made);
        Ok(())
    }

    /// Puts a list under `key`, with the result of `make` for each table of the list `value`; tables without
    /// a result are left out. Any other value is copied, so that the reader reports it.
    pub(super) fn put_list(
        &mut self,
        key: &'static str,
        value: Value<'a>,
        mut make: impl FnMut(Value<'a>) -> Result<Option<Self>, FindingReported>,
    ) -> Result<(), FindingReported> {
        let mut result = Ok(());
        let made = if value.is_list() {
            let mut items = DeArray::new();
            for item in value.items()? {
                let written = item.written();
                if !item.is_table() {
                    items.push(written.clone());
                    continue;
                }
                match make(item) {
                    Ok(Some(made)) => {
                        let made = DeValue::Table(made.into_table());
                        items.push(Spanned::new(written.span(), made));
                    }
                    Ok(None) => {}
                    Err(reported) => result = Err(reported),
                }
            }
            DeValue::Array(items)
        } else {
            value.written().get_ref().clone()
        };
        self.put(key, value.written().span(), made);
        result
    }

    /// Whether `key` has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Whether `key` has a table.
    pub(super) fn is_table(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| value.get_ref().is_table())
    }

    /// The number under `key`, as text.
    pub(super) fn number(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| number(value))
    }

    /// Removes `key`.
    pub(super) fn take(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Whether `key` has a list without items.
    pub(super) fn is_empty_list(&self, key: &str) -> bool {
        let list = self.0.get(key).and_then(|value| value.get_ref().as_array());
        list.is_some_and(|items| items.is_empty())
    }

    pub(super) fn into_table(self) -> DeTable<'a> {
        self.0
    }
}

/// The number `value`, as text.
pub(super) fn number<'v>(value: &'v Spanned<DeValue<'_>>) -> Option<&'v str> {
    value.get_ref().as_integer().map(DeInteger::as_str)
}
