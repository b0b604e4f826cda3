//! The policy language as data: kinds, their keys, the values of these, and defaults. `cargo xtask docs`
//! generates the reference and the JSON schema for editors from it.
//!
//! It reads no documents: the readers in [`crate::policy`] do, and report findings with more detail than a
//! schema could. Tests compare the two: they fail if only one of them has a key or accepts a value.

mod egress;
mod http_route;
mod http_route_group;
mod identity_binding;
mod ingress_backend;
mod json;
mod markdown;
mod namespace;
mod retry;
mod service;
mod tcp_route;
mod telemetry;
#[cfg(test)]
mod tests;
mod traffic_split;
mod traffic_target;
mod upstream_traffic_setting;

use std::ops::RangeInclusive;

use crate::kinds::{PolicyKind, policy_kinds};

pub use json::json_schema;
pub use markdown::kinds;

macro_rules! descriptions {
    ($($key:ident, $objects:ident, $Object:ident $(, $rest:tt)*;)*) => {
        /// All kinds.
        pub const KINDS: &[&Kind] = &[$(&$key::KIND),*];
    };
}

policy_kinds!(descriptions);

/// A kind of object: an array of tables at the top of a document.
#[derive(Debug)]
pub struct Kind {
    /// The kind.
    pub kind: PolicyKind,
    /// The purpose of its objects, in one or two sentences.
    pub about: &'static str,
    /// One object.
    pub shape: Shape,
    /// A document that uses every key. All examples together are one policy without a finding.
    pub example: &'static str,
}

/// The keys that a table may have.
#[derive(Debug)]
pub struct Shape {
    /// The name of the table, with its article, as in findings.
    pub what: &'static str,
    /// Its keys, in the order of the reference.
    pub keys: &'static [Key],
}

/// A key of a table.
#[derive(Debug)]
pub struct Key {
    /// The key itself.
    pub name: &'static str,
    /// What it sets, in one or two sentences that each end with a full stop.
    pub about: &'static str,
    /// Its values.
    pub form: Form,
    /// Whether it is required, else its default.
    pub left_out: WhenOmitted,
}

impl Key {
    /// Whether its table needs it or another such key.
    fn is_one_required(&self) -> bool {
        matches!(self.left_out, WhenOmitted::OneRequired | WhenOmitted::ExactlyOneRequired)
    }
}

/// The default of a key, or that it is required.
#[derive(Debug)]
pub enum WhenOmitted {
    /// It is required.
    Required,
    /// At least one of the keys of the table with this value is required.
    OneRequired,
    /// Exactly one of the keys of the table with this value is required.
    ExactlyOneRequired,
    /// This text is the default.
    Text(&'static str),
    /// This number is the default.
    Number(u32),
    /// A description of the default.
    Means(&'static str),
}

/// The values that a key takes.
#[derive(Debug)]
pub enum Form {
    /// A name: one DNS label.
    Name,
    /// One of a few words.
    Word(fn() -> Vec<&'static str>),
    /// Any text that matches an expression (ECMA 262, so that editors can read it too).
    Text {
        /// The name of the text, without its article.
        what: &'static str,
        /// The pattern that it matches.
        pattern: &'static str,
    },
    /// A whole number.
    Integer(RangeInclusive<u32>),
    /// A port, or a range of ports as in `"20000-32000"`.
    PortRange,
    /// A port of a service: its number or its name.
    PortOrName,
    /// An HTTP status, or a range of statuses as in `"200-399"`.
    StatusRange,
    /// A number from 0 to 100, with 4 decimals at most.
    Percent,
    /// `true` or `false`.
    Boolean,
    /// A list.
    List(&'static Self),
    /// A list of at least one item.
    AtLeastOne(&'static Self),
    /// A table with keys of the language.
    Table(&'static Shape),
    /// A table of at least one key, whose keys are the user's own words.
    Map {
        /// The name of a key, without its article.
        key: &'static str,
        /// The pattern that a key matches.
        pattern: &'static str,
        /// The form of the values.
        value: &'static Self,
    },
    /// A form, or a list of at least one of it.
    OneOrMore(&'static Self),
    /// One of a few words, or a table.
    WordOrTable(fn() -> Vec<&'static str>, &'static Shape),
}

/// `name`, which all kinds have.
const NAME: Key = Key {
    name: "name",
    about: "Name, unique among the objects of its kind in the namespace.",
    form: Form::Name,
    left_out: WhenOmitted::Required,
};

/// `namespace`, which all kinds have.
const NAMESPACE: Key = Key {
    name: "namespace",
    about: "Namespace of the object; names in the object refer to it.",
    form: Form::Name,
    left_out: WhenOmitted::Text("default"),
};

/// `scope`, of objects that may apply to many services.
const SCOPE: Key = Key {
    name: "scope",
    about: "Without `service`: whether the object applies to its namespace or to the whole mesh.",
    form: Form::Word(|| crate::policy::SCOPES.map(|(word, _)| word).to_vec()),
    left_out: WhenOmitted::Text("namespace"),
};

/// The pattern of a duration, as precise as a JSON schema can express it.
const DURATION: Form =
    Form::Text { what: "duration, such as `20ms`", pattern: r"^\s*[+-]?[0-9Pp]" };

/// The number of a port.
const PORT: Form = Form::Integer(1..=65535);

/// A locality.
const LOCALITY: Form = Form::Text {
    what: "locality, such as `eu/eu-1/rack-7`",
    pattern: r"^([^\s*/]{0,128}/){0,2}[^\s*/]{1,128}$",
};

/// Labels of endpoints.
const LABELS: Form = Form::Map {
    key: "label",
    pattern: r"^[\s\S]{1,512}$",
    value: &Form::Text { what: "text, at most 512 bytes", pattern: r"^[\s\S]{0,512}$" },
};
