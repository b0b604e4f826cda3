//! Reserved headers: request headers that the mesh sets, takes off or hides, so that policy may not name them.
//!
//! Policy readers reject them, sidecars are configured to handle them, and verdicts leave them out.

/// The header in which the server's sidecar tells the application who calls. It takes none from callers.
pub const CLIENT_CERTIFICATE: &str = "x-forwarded-client-cert";

/// How headers begin in which Envoys tell each other what to do. Sidecars take them off requests of whoever
/// sends them.
pub const TO_ENVOY: &str = "x-envoy-";

/// How headers begin under which a sidecar puts aside what its own application says to it of time and of
/// retries. It takes them off as well.
pub const PUT_ASIDE: &str = "x-ironmesh-override-";
