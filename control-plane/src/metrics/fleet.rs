//! The metrics of the fleet: the versions of its programs, and the proxies that operators have taken out of service.

use ironmesh_catalog::CordonMode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::register::Register;
use crate::versions;

/// Encodes them. They follow from the join records, so that all control planes of a mesh have the same.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    register: &Register,
) -> Result<(), std::fmt::Error> {
    let records = register.records();
    let report = versions::report(&records);
    let gauge = |count: usize| ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
    let kind = gauge(0).metric_type();
    let help = "Proxies in use by the last known version of a program";
    let mut family = encoder.encode_descriptor("proxy_versions", help, None, kind)?;
    for (component, counts) in versions::labelled(&report) {
        for (version, count) in counts {
            let labels = [("component", component.to_owned()), ("version", version)];
            gauge(count).encode(family.encode_family(&labels)?)?;
        }
    }
    let help =
        "Proxies in use whose last known version of a program is below the supported minimum";
    let mut family = encoder.encode_descriptor("proxies_below_minimum", help, None, kind)?;
    for (component, versions) in [("envoy", &report.envoy), ("agent", &report.agent)] {
        let labels = [("component", component)];
        gauge(versions.below_minimum).encode(family.encode_family(&labels)?)?;
    }
    let help = "Proxies in use that operators have cordoned or drained";
    let mut family = encoder.encode_descriptor("proxies_cordoned", help, None, kind)?;
    for (mode, word) in [(CordonMode::Cordon, "cordon"), (CordonMode::Drain, "drain")] {
        let cordons = records.values().filter_map(|record| record.cordon.as_ref());
        let count = cordons.filter(|cordon| cordon.mode() == mode).count();
        gauge(count).encode(family.encode_family(&[("mode", word)])?)?;
    }
    Ok(())
}
