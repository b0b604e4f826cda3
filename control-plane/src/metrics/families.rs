//! Writes metric families. It knows no metric.

use std::fmt::Error;

use jiff::Timestamp;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

/// The writer of families.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

/// A value of a gauge.
pub(super) trait GaugeValue {
    /// The type that the library writes.
    type Encoded: EncodeGaugeValue;

    fn encoded(self) -> Self::Encoded;
}

impl GaugeValue for usize {
    type Encoded = i64;

    fn encoded(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

impl GaugeValue for u64 {
    type Encoded = i64;

    fn encoded(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

impl GaugeValue for f64 {
    type Encoded = Self;

    fn encoded(self) -> Self {
        self
    }
}

impl<'a> Families<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// A gauge without labels.
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        value: impl GaugeValue,
    ) -> Result<(), Error> {
        let family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value.encoded()).encode(family)
    }

    /// A gauge for each combination of labels.
    pub(super) fn gauges<L: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([L; N], impl GaugeValue)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (words, value) in values {
            let pairs = pairs(labels, &words);
            ConstGauge::new(value.encoded()).encode(family.encode_family(&&*pairs)?)?;
        }
        Ok(())
    }

    /// A counter without labels.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(family)
    }

    /// A counter of seconds without labels.
    pub(super) fn counter_of_seconds(
        &mut self,
        name: &str,
        help: &str,
        value: f64,
    ) -> Result<(), Error> {
        let family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(family)
    }

    /// A counter for each combination of labels.
    pub(super) fn counters<L: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([L; N], u64)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (words, value) in values {
            let pairs = pairs(labels, &words);
            ConstCounter::new(value).encode(family.encode_family(&&*pairs)?)?;
        }
        Ok(())
    }

    /// A histogram of durations for each value of a label.
    pub(super) fn durations<'b>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'b str, &'b Histogram)>,
    ) -> Result<(), Error> {
        let unit = Some(&Unit::Seconds);
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (word, histogram) in values {
            histogram.encode(family.encode_family(&[(label, word)])?)?;
        }
        Ok(())
    }
}

/// How long something has lasted, in seconds; 0 if it does not, or has begun in the future of a clock that was set back.
pub(super) fn age(since: Option<Timestamp>, now: Timestamp) -> f64 {
    since.map_or(0.0, |since| now.duration_since(since).as_secs_f64().max(0.0))
}

fn pairs<'a, L: AsRef<str>, const N: usize>(
    labels: [&'a str; N],
    words: &'a [L; N],
) -> Vec<(&'a str, &'a str)> {
    labels.into_iter().zip(words.each_ref().map(AsRef::as_ref)).collect()
}
