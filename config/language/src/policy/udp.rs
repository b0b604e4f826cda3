//! UDP, which the mesh does not carry.

/// The reason why UDP is not supported.
pub(super) const NO_UDP: &str =
    "the mesh carries HTTP and TCP: UDP has no handshake in which to verify a caller";
