//! The metrics of the enrollment listener, and of reports about the health of applications.

use ironmesh_enrollment::EnrollmentCounters;

use super::families::Families;
use crate::health_discovery::{HealthDiscovery, ReportOutcome};

pub(super) fn encode(
    families: &mut Families<'_>,
    enrollment: &EnrollmentCounters,
    health_discovery: &HealthDiscovery,
) -> Result<(), std::fmt::Error> {
    let requests = enrollment.requests().map(|(outcome, count)| ([outcome.word()], count));
    let help = "Requests of machines for certificates, by outcome";
    families.counters("enrollment_requests", help, ["reason"], requests)?;
    let lost = enrollment.connections_lost().map(|(why, count)| ([why.word()], count));
    let help = "Connections of machines that ended without a request, by reason";
    families.counters("enrollment_connections_lost", help, ["reason"], lost)?;
    let reports = &health_discovery.counters;
    let reports = ReportOutcome::ALL.map(|outcome| ([outcome.word()], reports.reports(outcome)));
    let help = "Reports of Envoys about the health of their applications, by outcome";
    families.counters("health_reports", help, ["reason"], reports)
}
