//! UDP, which the mesh does not carry.

/// Why there is nothing for UDP.
pub(super) const NO_UDP: &str =
    "the mesh carries HTTP and TCP: UDP has no handshake in which to verify a caller";
