//! Reserved headers: request headers that the mesh sets, removes or hides, so policy may not name them.
//!
//! Policy readers reject them, sidecars handle them, and verdicts ignore them.

/// The header in which the server's sidecar names the caller to the application. It accepts none from callers.
pub const CLIENT_CERTIFICATE: &str = "x-forwarded-client-cert";

/// The prefix of headers with commands for Envoy. Sidecars remove them from all requests.
pub const ENVOY_HEADER_PREFIX: &str = "x-envoy-";

/// The prefix under which a sidecar keeps the timeout and retry headers of its own application. It removes them
/// as well.
pub const SAVED_OVERRIDE_PREFIX: &str = "x-ironmesh-override-";
