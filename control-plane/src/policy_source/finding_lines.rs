//! Policy findings in the log: one structured line each, without lines of policy. Log collectors and users who may not
//! read policy read the log; `admin.sock` and `ironmesh policy check` have the annotated form.

use ironmesh_catalog::Finding;

/// The most findings of one reading that are logged, errors first. `ironmesh policy check` shows all.
const MAX_LINES: usize = 50;

/// Logs the findings of the policy in `source`.
pub(super) fn log(source: &str, findings: &[Finding]) {
    let (errors, warnings): (Vec<_>, Vec<_>) = findings.iter().partition(|one| one.is_error());
    for finding in errors.into_iter().chain(warnings).take(MAX_LINES) {
        let Finding { code, message, help, .. } = finding;
        let at = finding.spot.as_ref().map(tracing::field::display);
        let action = help.as_ref().map(tracing::field::display);
        if finding.is_error() {
            tracing::error!(source, %code, at, reason = %message, action, "policy finding");
        } else {
            tracing::warn!(source, %code, at, reason = %message, action, "policy finding");
        }
    }
    let more = findings.len().saturating_sub(MAX_LINES);
    if more > 0 {
        tracing::warn!(source, more, "further policy findings are not logged");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use ironmesh_catalog::Code;
    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn many_findings_are_logged_errors_first_and_bounded() {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).without_time();
        let log = log.with_writer(move || writer.clone());
        let mut findings = vec![Finding::warning(Code(301), None, "unused"); MAX_LINES + 2];
        findings.push(Finding::error(Code(102), None, "unknown key").help("remove it"));
        tracing::subscriber::with_default(log.finish(), || super::log("policy", &findings));
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), MAX_LINES + 1, "{text}");
        assert!(lines[0].contains("ERROR") && lines[0].contains("code=IM0102"), "{text}");
        assert!(lines[0].contains("reason=unknown key action=remove it"), "{text}");
        assert!(lines[MAX_LINES].contains("more=3"), "{text}");
    }
}
