//! The allowed imports between crates. A new edge is an edit of a table below, with the reason in
//! the commit.
//!
//! Only normal dependencies count: a crate's own tests may use more.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::{metadata, named_dependencies, normal_graph};

/// The crates that wire or test the others, and so may import all.
const MAY_IMPORT_ALL: &[&str] = &["ironmesh", "ironmesh-tests", "xtask"];

/// The workspace crates that each other crate may import.
const ALLOWED_EDGES: &[(&str, &[&str])] = &[
    (
        "ironmesh-admin",
        &["ironmesh-analysis", "ironmesh-api", "ironmesh-catalog", "ironmesh-listener"],
    ),
    // It writes the files that `proxy bootstrap` writes, and enrolls and renews by the machines' API. It serves Envoy's
    // messages by SDS, which `ironmesh-xds-wire` alone may name.
    (
        "ironmesh-agent",
        &[
            "ironmesh-agent-envoy",
            "ironmesh-catalog",
            "ironmesh-cert",
            "ironmesh-enrollment",
            "ironmesh-sidecar",
            "ironmesh-sidecar-folder",
            "ironmesh-xds-wire",
        ],
    ),
    // It knows processes of Envoy and the versions of programs: the agent passes in what to run, and the leave request.
    ("ironmesh-agent-envoy", &["ironmesh-sidecar"]),
    ("ironmesh-analysis", &["ironmesh-catalog"]),
    ("ironmesh-api", &["ironmesh-analysis", "ironmesh-catalog"]),
    // The baseline server (`floor`) uses the control plane's TLS code, and an authority for it.
    // The admin API's client makes the operators' requests.
    (
        "ironmesh-bench",
        &[
            "ironmesh-admin",
            "ironmesh-api",
            "ironmesh-catalog",
            "ironmesh-cert",
            "ironmesh-enrollment",
            "ironmesh-store",
            "ironmesh-xds-wire",
        ],
    ),
    ("ironmesh-catalog", &[]),
    ("ironmesh-cert", &["ironmesh-catalog"]),
    // It parses the values of flags into the types of their owners.
    (
        "ironmesh-command-line",
        &[
            "ironmesh-agent",
            "ironmesh-api",
            "ironmesh-catalog",
            "ironmesh-enrollment",
            "ironmesh-terminal",
        ],
    ),
    ("ironmesh-config-language", &["ironmesh-catalog"]),
    // `sidecar.class` names one of the drivers.
    (
        "ironmesh-config-settings",
        &["ironmesh-catalog", "ironmesh-config-language", "ironmesh-sidecar"],
    ),
    (
        "ironmesh-config-sources",
        &[
            "ironmesh-catalog",
            "ironmesh-config-language",
            "ironmesh-config-settings",
            "ironmesh-etcd",
        ],
    ),
    (
        "ironmesh-control-plane",
        &[
            "ironmesh-admin",
            "ironmesh-api",
            "ironmesh-analysis",
            "ironmesh-catalog",
            "ironmesh-cert",
            "ironmesh-config-language",
            "ironmesh-config-settings",
            "ironmesh-config-sources",
            "ironmesh-enrollment",
            "ironmesh-etcd",
            "ironmesh-providers",
            // The registry of the drivers, and the versions that they run.
            "ironmesh-sidecar",
            "ironmesh-store",
            "ironmesh-store-etcd",
            "ironmesh-traces",
            "ironmesh-xds-compile",
            "ironmesh-xds-server",
            "ironmesh-xds-wire",
        ],
    ),
    ("ironmesh-demo", &["ironmesh-catalog"]),
    // Requests of machines, identities and TLS configurations are checked and built in `cert`.
    ("ironmesh-enrollment", &["ironmesh-catalog", "ironmesh-cert", "ironmesh-listener"]),
    ("ironmesh-etcd", &["ironmesh-catalog"]),
    // It calls the hot paths of the control plane directly.
    (
        "ironmesh-instructions",
        &[
            "ironmesh-catalog",
            "ironmesh-config-language",
            "ironmesh-providers",
            "ironmesh-xds-compile",
            "ironmesh-xds-server",
            "ironmesh-xds-wire",
        ],
    ),
    // It knows sources, handshakes and limits, and no identity.
    ("ironmesh-listener", &[]),
    ("ironmesh-providers", &["ironmesh-catalog"]),
    ("ironmesh-sidecar", &["ironmesh-catalog"]),
    // It writes what `ironmesh-sidecar`, which has no IO, makes, and generates the keys beside it. The overlay is YAML,
    // which one crate reads.
    (
        "ironmesh-sidecar-folder",
        &["ironmesh-catalog", "ironmesh-cert", "ironmesh-config-language", "ironmesh-sidecar"],
    ),
    ("ironmesh-store", &["ironmesh-catalog"]),
    // Two engines of one trait, which do not know each other; what seals a record is in the first.
    ("ironmesh-store-etcd", &["ironmesh-etcd", "ironmesh-store"]),
    ("ironmesh-terminal", &["ironmesh-catalog"]),
    // It knows spans, and no mesh.
    ("ironmesh-traces", &[]),
    // It writes the answers of the API as text.
    (
        "ironmesh-views",
        &["ironmesh-analysis", "ironmesh-api", "ironmesh-catalog", "ironmesh-terminal"],
    ),
    // The ports and the cluster that a bootstrap has, to which resources refer.
    ("ironmesh-xds-compile", &["ironmesh-catalog", "ironmesh-sidecar", "ironmesh-xds-wire"]),
    ("ironmesh-xds-server", &["ironmesh-xds-wire"]),
    ("ironmesh-xds-wire", &[]),
];

/// External crates that only some crates may name, besides the tests and `xtask`.
const RESERVED: &[(&str, &[&str], &str)] = &[
    (
        "anyhow",
        // The control plane's tasks end the process when they fail: no code matches their errors.
        &["ironmesh", "ironmesh-bench", "ironmesh-control-plane", "ironmesh-instructions"],
        "errors of a library are types that callers match",
    ),
    ("envoy-types", &["ironmesh-xds-wire"], "Envoy's messages stay behind one door"),
    ("etcd-client", &["ironmesh-etcd"], "etcd is reached through one session"),
    ("rcgen", &["ironmesh-cert"], "certificates are made in one place"),
    ("saphyr-parser", &["ironmesh-config-language"], "files are read in one place"),
    (
        "toml",
        // The agent reads the settings of its machine, and no policy.
        &["ironmesh-agent", "ironmesh-config-language"],
        "files are read in one place",
    ),
];

/// The crates without IO, and the dependencies that they may not name.
const PURE: &[&str] = &[
    "ironmesh-analysis",
    "ironmesh-api",
    "ironmesh-catalog",
    "ironmesh-config-language",
    "ironmesh-config-settings",
    "ironmesh-sidecar",
    "ironmesh-xds-compile",
    "ironmesh-views",
];
const IO: &[&str] = &[
    "tokio",
    "tokio-util",
    "tokio-stream",
    "tonic",
    "hyper",
    "mio",
    "socket2",
    "fs-err",
    "rustix",
];

/// The one crate through which a pure crate may depend on tokio: `envoy-types` brings tonic with
/// its messages, and only `xds-wire` can name its content.
const OPAQUE: &str = "envoy-types";

#[test]
fn crates_import_only_allowed_crates() {
    let metadata = metadata();
    let packages = metadata.workspace_packages();
    let ours: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED_EDGES.iter().copied().collect();
    let mut problems = Vec::new();

    for package in &packages {
        let name = package.name.as_str();
        if MAY_IMPORT_ALL.contains(&name) {
            continue;
        }
        let Some(allowed) = allowed.get(name) else {
            problems.push(format!("`{name}` is not in the table of allowed edges"));
            continue;
        };
        for imported in named_dependencies(package).intersection(&ours) {
            if !allowed.contains(imported) {
                problems.push(format!("`{name}` may not import `{imported}`"));
            }
        }
    }
    for name in allowed.keys().chain(MAY_IMPORT_ALL) {
        if !ours.contains(name) {
            problems.push(format!("`{name}` is in the table, but not in the workspace"));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn reserved_dependencies_are_named_only_by_their_owners() {
    let metadata = metadata();
    let mut problems = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let named = named_dependencies(package);
        for (reserved, keepers, reason) in RESERVED {
            let excepted = keepers.contains(&name) || ["ironmesh-tests", "xtask"].contains(&name);
            if named.contains(reserved) && !excepted {
                problems.push(format!("`{name}` may not name `{reserved}`: {reason}"));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn pure_crates_depend_on_no_io() {
    let metadata = metadata();
    let graph = normal_graph(&metadata);
    let mut problems = Vec::new();
    for package in metadata.workspace_packages() {
        if !PURE.contains(&package.name.as_str()) {
            continue;
        }
        for named in named_dependencies(package) {
            if IO.contains(&named) {
                problems.push(format!("`{}` may not name `{named}`", package.name));
            }
        }
        let mut seen = BTreeSet::new();
        let mut open = vec![&package.id];
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            match metadata[id].name.as_str() {
                "tokio" => problems.push(format!("`{}` has tokio below it", package.name)),
                OPAQUE => {}
                _ => open.extend(graph.get(id).into_iter().flatten()),
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
