//! The codes of this crate's findings. Each has a page in `docs/errors/`.
//!
//! A code never changes its meaning, and the number of a removed code is never used again.

use ironmesh_catalog::Code;

#[cfg(test)]
mod tests;

/// The file is not TOML.
pub const SYNTAX: Code = Code(101);
/// A key or a kind of table that does not exist.
pub const UNKNOWN_KEY: Code = Code(102);
/// A required key is missing.
pub const MISSING_KEY: Code = Code(103);
/// A value of another TOML type than the key takes.
pub const WRONG_TYPE: Code = Code(104);
/// A value of the right type that is not valid for the key.
pub const INVALID_VALUE: Code = Code(105);
/// A name that is not one DNS label.
pub const INVALID_NAME: Code = Code(106);
/// A file that cannot be read as text.
pub const UNREADABLE_FILE: Code = Code(107);
/// A feature of SMI or Open Service Mesh that this version does not support.
pub const NOT_SERVED: Code = Code(108);
/// A key in etcd without the content that a push writes.
pub const DAMAGED_PUSH: Code = Code(109);
/// The file is not YAML, or uses YAML features that are not supported.
pub const YAML_SYNTAX: Code = Code(111);
/// A resource in YAML that is no policy, or of an API version that does not exist.
pub const UNKNOWN_RESOURCE: Code = Code(112);
/// A policy above a size limit.
pub const TOO_LARGE: Code = Code(113);
/// More findings than are reported.
pub const TOO_MANY_FINDINGS: Code = Code(114);
/// A policy folder without any policy.
pub const EMPTY_FOLDER: Code = Code(115);
/// Files in the policy folder that are not read.
pub const IGNORED_FILE: Code = Code(116);
/// A file that changes while it is read.
pub const CHANGING_FILE: Code = Code(117);
pub use ironmesh_catalog::codes::REMOVAL_HELD;
/// A symbolic link that leads out of the policy folder.
pub const LINK_OUTSIDE: Code = Code(119);
/// A reference to an object that does not exist.
pub const NOT_FOUND: Code = Code(201);
/// Two objects, or two items of a list, with the same name.
pub const DUPLICATE_NAME: Code = Code(202);
/// A weight, or a sum of weights, out of its range.
pub const WEIGHTS: Code = Code(301);
/// A regular expression that Envoy rejects or reads differently, or that can match nothing.
pub const REGEX: Code = Code(302);
/// Traffic splits that conflict with each other, or with their services.
pub const SPLIT_SHAPE: Code = Code(303);
/// An empty list that could be mistaken for "all".
pub const EMPTY_LIST: Code = Code(304);
/// A rule that matches no port of the services that its target selects.
pub const IDLE_RULE: Code = Code(305);
/// A backend of a traffic split that no caller may call, beside others that callers may call.
pub const UNCALLED_BACKEND: Code = Code(306);
/// A rule that grants nothing beyond another rule.
pub const SHADOWED_RULE: Code = Code(307);
/// Services that no caller may call.
pub const UNREACHABLE: Code = Code(308);
/// A traffic target whose destination has no service with ports.
pub const NOTHING_TO_CALL: Code = Code(309);
/// A real Envoy rejects a resource that the policy compiles to.
pub const REJECTED_BY_ENVOY: Code = Code(310);
/// A namespace object for a namespace without services.
pub const EMPTY_NAMESPACE: Code = Code(313);
/// A backend of a traffic split that has no endpoints.
pub const BACKEND_WITHOUT_ENDPOINTS: Code = Code(314);
/// Two HTTP routes or retries that configure the same setting of the same calls.
pub const DUPLICATE_ROUTE: Code = Code(601);
/// An HTTP route or a setting of it that has no effect.
pub const IDLE_ROUTE: Code = Code(602);
/// Settings of an HTTP route that cannot take effect together.
pub const CONTRADICTION: Code = Code(603);
/// A mirror to a service to which calls cannot be mirrored.
pub const MIRROR: Code = Code(604);
/// Two upstream traffic settings that configure the same setting of the same services.
pub const DUPLICATE_SETTING: Code = Code(611);
/// An upstream traffic setting that has no effect.
pub const IDLE_SETTING: Code = Code(612);
/// An egress to an address that proxies never call.
pub const UNREACHABLE_EGRESS: Code = Code(621);
/// An egress for accounts whose namespace allows all calls out of the mesh.
pub const NEEDLESS_EGRESS: Code = Code(622);
/// An ingress backend that would be open to all callers.
pub const OPEN_INGRESS: Code = Code(631);
/// Settings of an ingress backend that cannot take effect together.
pub const INGRESS_CONTRADICTION: Code = Code(632);
pub use ironmesh_catalog::codes::INGRESS_COLLISION;
/// Two telemetries that configure the same setting of the same services.
pub const DUPLICATE_TELEMETRY: Code = Code(641);
/// A format of an access log that Envoy would reject.
pub const LOG_FORMAT: Code = Code(642);
/// A telemetry of a service without a sidecar.
pub const TELEMETRY_WITHOUT_SIDECAR: Code = Code(643);
/// A source service of an ingress whose endpoints a provider discovers: ingress does not use their addresses.
pub const DISCOVERED_INGRESS_SOURCE: Code = Code(651);
/// The file of an access log is a path and not a name.
pub const LOG_FILE: Code = Code(662);
/// A condition on a header whose name has an underscore.
pub const UNDERSCORED_HEADER: Code = Code(665);
/// The format of an access log in a file has several lines.
pub const LOG_LINES: Code = Code(663);

/// All codes, in order.
pub const ALL: [Code; 50] = [
    SYNTAX,
    UNKNOWN_KEY,
    MISSING_KEY,
    WRONG_TYPE,
    INVALID_VALUE,
    INVALID_NAME,
    UNREADABLE_FILE,
    NOT_SERVED,
    DAMAGED_PUSH,
    YAML_SYNTAX,
    UNKNOWN_RESOURCE,
    TOO_LARGE,
    TOO_MANY_FINDINGS,
    EMPTY_FOLDER,
    IGNORED_FILE,
    CHANGING_FILE,
    REMOVAL_HELD,
    LINK_OUTSIDE,
    NOT_FOUND,
    DUPLICATE_NAME,
    WEIGHTS,
    REGEX,
    SPLIT_SHAPE,
    EMPTY_LIST,
    IDLE_RULE,
    UNCALLED_BACKEND,
    SHADOWED_RULE,
    UNREACHABLE,
    NOTHING_TO_CALL,
    REJECTED_BY_ENVOY,
    EMPTY_NAMESPACE,
    BACKEND_WITHOUT_ENDPOINTS,
    DUPLICATE_ROUTE,
    IDLE_ROUTE,
    CONTRADICTION,
    MIRROR,
    DUPLICATE_SETTING,
    IDLE_SETTING,
    UNREACHABLE_EGRESS,
    NEEDLESS_EGRESS,
    OPEN_INGRESS,
    INGRESS_CONTRADICTION,
    INGRESS_COLLISION,
    DUPLICATE_TELEMETRY,
    LOG_FORMAT,
    TELEMETRY_WITHOUT_SIDECAR,
    DISCOVERED_INGRESS_SOURCE,
    LOG_FILE,
    LOG_LINES,
    UNDERSCORED_HEADER,
];
