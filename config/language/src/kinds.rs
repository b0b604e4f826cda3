//! The kinds of policy: one table with the parts that are alike in all kinds, for readers, drafts, schema,
//! YAML and import.
//!
//! A new kind is a row here, a reader in `policy/`, a description in `schema/`, and a field of
//! [`MeshSpecification`](ironmesh_catalog::MeshSpecification). If SMI or Open Service Mesh has the kind, it
//! is also an entry of `yaml/mapping.rs`.

/// Passes the rows of the table to the macro `$rows`, in the order in which findings list the kinds. Their columns:
///
/// 1. the key in a policy document, which is also the name of the modules that read and describe the kind;
/// 2. the field of a specification, and so of a part and a draft;
/// 3. the type of an object, in the catalog;
/// 4. one object with its article, as findings call it;
/// 5. its place in an imported policy; kinds of the same place are in the order of their keys;
/// 6. in brackets, where `==` is too strict: whether two objects look the same to all that refer to them.
macro_rules! policy_kinds {
    ($rows:ident) => {
        $rows! {
            namespace, namespaces, Namespace, "a namespace", 10;
            service, services, Service, "a service", 0,
                [ironmesh_catalog::Service::differs_in_endpoints_only];
            traffic_target, traffic_targets, TrafficTarget, "a traffic target", 4;
            http_route_group, http_route_groups, HttpRouteGroup, "an HTTP route group", 2;
            tcp_route, tcp_routes, TcpRoute, "a TCP route", 3;
            traffic_split, traffic_splits, TrafficSplit, "a traffic split", 5;
            identity_binding, identity_bindings, IdentityBinding, "an identity binding", 1;
            http_route, http_routes, HttpRoute, "an HTTP route", 6;
            retry, retries, Retry, "a retry", 7;
            upstream_traffic_setting, upstream_traffic_settings, UpstreamTrafficSetting,
                "an upstream traffic setting", 10;
            egress, egresses, Egress, "an egress", 10;
            ingress_backend, ingress_backends, IngressBackend, "an ingress backend", 8;
            telemetry, telemetries, Telemetry, "a telemetry", 9;
        }
    };
}

pub(crate) use policy_kinds;

macro_rules! kinds {
    ($(
        $key:ident, $objects:ident, $Object:ident, $what:literal, $import_place:literal
        $(, $rest:tt)*;
    )*) => {
        /// A kind of policy.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum PolicyKind {
            $(
                #[doc = concat!("`[[", stringify!($key), "]]`, ", $what, ".")]
                $Object,
            )*
        }

        impl PolicyKind {
            /// All kinds, in the order in which findings list them.
            pub const ALL: &[Self] = &[$(Self::$Object),*];

            /// The key of the kind in a policy document: `service`.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$Object => stringify!($key),)*
                }
            }

            /// One object of the kind, with its article, as findings call it: `a service`.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$Object => $what,)*
                }
            }

            /// Where an imported policy has the kind.
            pub(crate) fn import_place(self) -> u8 {
                match self {
                    $(Self::$Object => $import_place,)*
                }
            }
        }
    };
}

policy_kinds!(kinds);

impl PolicyKind {
    /// The kind whose key in a policy document this is.
    pub fn of_key(key: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.key() == key)
    }

    /// The keys of all kinds.
    pub fn keys() -> impl Iterator<Item = &'static str> + Clone {
        Self::ALL.iter().map(|kind| kind.key())
    }

    /// One object of the kind, without an article: `service`.
    pub(crate) fn noun(self) -> &'static str {
        self.what().split_once(' ').map_or_else(|| self.what(), |(_, noun)| noun)
    }
}
