//! `locality`. It is read in `policy/upstream_traffic_setting/locality.rs`.

use ironmesh_catalog::Nearness;

use crate::schema::{Form, Key, LOCALITY, Shape, WhenOmitted};

pub(super) const ALL: Shape = Shape {
    what: "`locality`",
    keys: &[
        Key {
            name: "prefer_local",
            about: "Prefers endpoints in the caller's own region, zone or sub-zone, then wider localities step by step.",
            form: Form::Word(|| Nearness::ALL.map(|(word, _)| word).to_vec()),
            left_out: WhenOmitted::OneRequired,
        },
        Key {
            name: "failover",
            about: "Order among equally distant localities, for callers in a locality. Requires `prefer_local` or `distribute`.",
            form: Form::AtLeastOne(&Form::Table(&FAILOVER)),
            left_out: WhenOmitted::Means("no order"),
        },
        Key {
            name: "distribute",
            about: "Shares of the calls from a locality. Other localities receive calls only if all named ones fail.",
            form: Form::AtLeastOne(&Form::Table(&DISTRIBUTION)),
            left_out: WhenOmitted::OneRequired,
        },
    ],
};

const FROM: Key = Key {
    name: "from",
    about: "Locality of the callers; the most specific rule applies.",
    form: LOCALITY,
    left_out: WhenOmitted::Means("all callers that no other rule covers"),
};

const FAILOVER: Shape = Shape {
    what: "a failover",
    keys: &[
        FROM,
        Key {
            name: "to",
            about: "Localities in order of preference; all others come last.",
            form: Form::AtLeastOne(&LOCALITY),
            left_out: WhenOmitted::Required,
        },
    ],
};

const DISTRIBUTION: Shape = Shape {
    what: "a distribution",
    keys: &[
        FROM,
        Key {
            name: "to",
            about: "Localities with their shares; none may contain another.",
            form: Form::AtLeastOne(&Form::Table(&SHARE)),
            left_out: WhenOmitted::Required,
        },
    ],
};

const SHARE: Shape = Shape {
    what: "a share",
    keys: &[
        Key {
            name: "locality",
            about: "Locality.",
            form: LOCALITY,
            left_out: WhenOmitted::Required,
        },
        Key {
            name: "weight",
            about: "Percentage of the calls; the weights must sum to 100.",
            form: Form::Integer(1..=100),
            left_out: WhenOmitted::Required,
        },
    ],
};
