//! `locality`. It is read in `policy/upstream_traffic_setting/locality.rs`.

use ironmesh_catalog::Nearness;

use crate::schema::{Form, Key, LOCALITY, LeftOut, Shape};

pub(super) const ALL: Shape = Shape {
    what: "`locality`",
    keys: &[
        Key {
            name: "prefer_local",
            about: "what is in the same place as the caller comes first, and then by steps what is less near",
            form: Form::Word(|| Nearness::ALL.map(|(word, _)| word).to_vec()),
            left_out: LeftOut::RefusedWithTheOthers,
        },
        Key {
            name: "failover",
            about: "what of the equally far comes first, for callers in a place; not without one of the others",
            form: Form::AtLeastOne(&Form::Table(&FAILOVER)),
            left_out: LeftOut::Means("none before another"),
        },
        Key {
            name: "distribute",
            about: "how calls from a place are shared out; what it does not name is called where all of these fail",
            form: Form::AtLeastOne(&Form::Table(&DISTRIBUTION)),
            left_out: LeftOut::RefusedWithTheOthers,
        },
    ],
};

const FROM: Key = Key {
    name: "from",
    about: "where the callers are; of several rules the one holds that says most of it",
    form: LOCALITY,
    left_out: LeftOut::Means("all of whom no other says anything"),
};

const FAILOVER: Shape = Shape {
    what: "a failover",
    keys: &[
        FROM,
        Key {
            name: "to",
            about: "the places, in order; what is not named comes last",
            form: Form::AtLeastOne(&LOCALITY),
            left_out: LeftOut::Refused,
        },
    ],
};

const DISTRIBUTION: Shape = Shape {
    what: "a distribution",
    keys: &[
        FROM,
        Key {
            name: "to",
            about: "the places, none of them in another",
            form: Form::AtLeastOne(&Form::Table(&SHARE)),
            left_out: LeftOut::Refused,
        },
    ],
};

const SHARE: Shape = Shape {
    what: "a share",
    keys: &[
        Key { name: "locality", about: "the place", form: LOCALITY, left_out: LeftOut::Refused },
        Key {
            name: "weight",
            about: "how many of a hundred calls go there; all weights are 100 together",
            form: Form::Integer(1..=100),
            left_out: LeftOut::Refused,
        },
    ],
};
