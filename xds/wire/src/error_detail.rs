//! The error of a NACK.

use envoy_types::pb::google::rpc::Status;

/// The error of a NACK, as the client reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorDetail {
    /// A gRPC status code.
    pub code: i32,
    /// The message: at most [`ErrorDetail::MAX_LENGTH`] bytes, in one line.
    pub message: String,
}

impl ErrorDetail {
    /// The maximum length of a message: a client must not fill memory or logs.
    pub const MAX_LENGTH: usize = 4096;

    fn new(code: i32, mut message: String) -> Self {
        let mut end = Self::MAX_LENGTH.min(message.len());
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        // The message reaches logs and terminals: no line breaks and no escape sequences.
        let message = message.replace(char::is_control, " ");
        Self { code, message }
    }
}

impl From<Status> for ErrorDetail {
    fn from(status: Status) -> Self {
        Self::new(status.code, status.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A31.
    #[test]
    fn error_detail_drops_control_characters() {
        let error = ErrorDetail::new(3, "no\n2026 INFO all is well\u{1b}[2J".to_owned());
        assert_eq!(error.message, "no 2026 INFO all is well [2J");
    }

    #[test]
    fn long_error_detail_is_truncated_between_characters() {
        let error = ErrorDetail::new(3, "ä".repeat(5000));
        assert_eq!(error.message.len(), ErrorDetail::MAX_LENGTH);
    }
}
