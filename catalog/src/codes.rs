//! Codes of findings that several crates report: about endpoints providers, participants, and collisions at a
//! proxy. Each has a page in `docs/errors`.

use crate::finding::Code;

/// A change of the policy folder that removes many objects at once, which is not yet active.
pub const REMOVAL_HELD: Code = Code(118);

/// An upstream in a bootstrap whose local port policy uses for another target.
pub const FLAG_OVERRIDDEN: Code = Code(410);

/// Two services of one proxy declare one local port for different services.
pub const UPSTREAMS_CONFLICT: Code = Code(411);

/// Two proxies of one machine declare the same local port.
pub const LOCAL_PORT_SHARED: Code = Code(412);

/// Another program holds the local port of an upstream.
pub const LOCAL_PORT_HELD: Code = Code(413);

/// A provider is unavailable or not authoritative; its last-known-good endpoints stay.
pub const PROVIDER_STALE: Code = Code(501);

/// A provider reports far fewer endpoints than before; the removal is held back for a while.
pub const ENDPOINTS_HELD: Code = Code(502);

/// A part of a provider's answer is not a usable endpoint.
pub const UNUSABLE_ENDPOINT: Code = Code(503);

/// Two providers contradict each other about one address and port.
pub const PROVIDERS_CONTRADICT: Code = Code(504);

/// The health of an endpoint flaps.
pub const ENDPOINT_FLAPS: Code = Code(505);

/// A proxy is unreachable, outside a mass disconnect.
pub const PROXY_UNREACHABLE: Code = Code(506);

/// A proxy is enrolled for a service, but no provider reports an endpoint at its address.
pub const PROXY_WITHOUT_ENDPOINT: Code = Code(507);

/// A `locality` setting names a locality without endpoints.
pub const LOCALITY_WITHOUT_ENDPOINTS: Code = Code(508);

/// The wall clock of the control plane jumped ahead or back.
pub const CLOCK_JUMPED: Code = Code(711);

/// Certificates in use have an issue date in the future.
pub const ISSUED_IN_FUTURE: Code = Code(712);

/// The clock of the control plane differs from that of an endpoints provider.
pub const CLOCK_DIFFERS: Code = Code(714);

/// Clients reject the control plane's certificate because of its dates: their clocks differ.
pub const PROXY_CLOCK_DIFFERS: Code = Code(715);

/// Two machines use the identity of one proxy.
pub const DUPLICATE_IDENTITY: Code = Code(713);
/// The labels that an identity binding selects by are set only by providers that it does not trust.
pub const UNTRUSTED_LABELS: Code = Code(509);

/// A provider reports an endpoint that policy excludes by its address or port.
pub const EXCLUDED_ENDPOINT: Code = Code(510);

/// The control plane queries etcd or Consul in plaintext over the network.
pub const PLAINTEXT_PROVIDER: Code = Code(511);
/// The disk rejects writes of the state store.
pub const STATE_NOT_WRITTEN: Code = Code(701);

/// The state file was removed or replaced while the control plane runs.
pub const STATE_FILE_LOST: Code = Code(702);

/// A stored record was changed by other programs, or is unreadable.
pub const RECORD_QUARANTINED: Code = Code(703);

/// Clients reject the control plane's certificate as that of an unknown authority.
pub const UNKNOWN_AUTHORITY: Code = Code(704);

/// The state file was replaced by an older copy, or its high-water mark cannot be trusted.
pub const STATE_ROLLED_BACK: Code = Code(705);

/// The store in etcd cannot be used.
pub const STORE_UNAVAILABLE: Code = Code(706);

/// A client other than the control planes of the mesh has changed the store in etcd.
pub const STORE_CHANGED: Code = Code(707);

/// etcd was put back to an older state of the store.
pub const STORE_ROLLED_BACK: Code = Code(708);

/// The copy of the store on the disk of a control plane cannot be written.
pub const STORE_COPY_NOT_WRITTEN: Code = Code(709);

/// The control plane refuses proxies, because it serves as many as it may.
pub const PROXIES_REFUSED: Code = Code(721);

/// Proxies know one address of the control plane, and the mesh has several control planes.
pub const SINGLE_ADDRESS: Code = Code(722);

/// A control plane of the mesh is of a version that is too far from that of this one.
pub const VERSIONS_APART: Code = Code(723);

/// A connected proxy has no inbound listener, because it NACKed the only one that it was sent.
pub const NO_INBOUND_LISTENER: Code = Code(731);

/// A target port at which no known endpoint of the service listens.
pub const PORT_WITHOUT_LISTENER: Code = Code(512);

/// A service port that policy allows to be called has no available endpoint.
pub const NO_ENDPOINT_FOR_CALLERS: Code = Code(732);

/// Applications fail the health check of their service.
pub const APPLICATION_UNHEALTHY: Code = Code(735);

/// A proxy was revoked, and peers still accept its certificates, because something fails.
pub const REVOCATION_NOT_ENFORCED: Code = Code(736);

/// Proxies get no configuration, because a revocation could not reach the certificates in it.
pub const CONFIGURATION_WITHHELD: Code = Code(737);

/// The certificate of a proxy expires soon.
pub const PROXY_CERTIFICATE_EXPIRING: Code = Code(733);

/// The certificate of a proxy has expired.
pub const PROXY_CERTIFICATE_EXPIRED: Code = Code(734);

/// A used token was presented again, with another key.
pub const TOKEN_PRESENTED_AGAIN: Code = Code(741);

/// A certificate was presented that its proxy has replaced, or with a key that is not its own.
pub const OLD_CERTIFICATE_PRESENTED: Code = Code(742);

/// A proxy has a certificate that is newer than the stored state.
pub const CERTIFICATE_NEWER_THAN_STATE: Code = Code(743);

/// The Azure machine of a proxy requested another enrollment, and Azure has not reimaged it.
pub const AZURE_MACHINE_JOINS_AGAIN: Code = Code(744);

/// Proxies run an Envoy or an agent that is older than this version supports.
pub const PROXY_BELOW_MINIMUM: Code = Code(754);

/// Two ingress rules collide: a proxy cannot distinguish their callers.
pub const INGRESS_COLLISION: Code = Code(633);

/// The control plane is not ready, and serves no xDS.
pub const NOT_READY: Code = Code(724);

/// The policy in the source is not active: it cannot be read, or it is rejected.
pub const POLICY_NOT_ACTIVE: Code = Code(725);

/// A proxy that was connected has no xDS stream.
pub const PROXY_DISCONNECTED: Code = Code(726);

/// A proxy NACKs resources.
pub const RESOURCES_NACKED: Code = Code(727);

/// A connected proxy has not ACKed everything for long.
pub const PROXY_STALE: Code = Code(728);

/// TLS handshakes with the machine of an enrolled proxy fail.
pub const HANDSHAKES_FAIL: Code = Code(729);

/// Strict mode would deny calls of a service in audit mode.
pub const STRICT_WOULD_DENY: Code = Code(751);

/// The codes whose warnings are problems too: an operator must act, though the mesh keeps its state.
pub const PROBLEMS: [Code; 6] = [
    PROVIDER_STALE,
    ENDPOINTS_HELD,
    REMOVAL_HELD,
    PROXY_DISCONNECTED,
    PROXY_STALE,
    STRICT_WOULD_DENY,
];

/// The codes whose errors callers see, or which leave a revocation without effect. A silence never makes them less than
/// a problem: it would hide an outage.
pub const OUTAGES: [Code; 6] = [
    NOT_READY,
    NO_INBOUND_LISTENER,
    NO_ENDPOINT_FOR_CALLERS,
    APPLICATION_UNHEALTHY,
    REVOCATION_NOT_ENFORCED,
    CONFIGURATION_WITHHELD,
];
