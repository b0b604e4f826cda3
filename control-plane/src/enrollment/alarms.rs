//! Alarms about certificates that should not be presented any more, and findings about them and about copied tokens.
//!
//! Alarms about certificates last a day after the last attempt, and end with the process; the journal keeps them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ironmesh_catalog::codes::{
    AZURE_MACHINE_JOINS_AGAIN, CERTIFICATE_NEWER_THAN_STATE, OLD_CERTIFICATE_PRESENTED,
    TOKEN_PRESENTED_AGAIN,
};
use ironmesh_catalog::{
    CertificateRecognition, Finding, JoinRecord, JoinToken, ObjectRef, ProxyId, ProxyName,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// How long an alarm lasts after the last attempt.
const RETENTION: SignedDuration = SignedDuration::from_hours(24);

/// The most alarms of one kind; the oldest is dropped for another. After a restored state there may be one for each proxy.
const MAX_ALARMS: usize = 1_000;

/// The most findings of one kind.
const NAMED: usize = 5;

/// Why a presented certificate is alarming.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CertificateAlarm {
    /// It was renewed long ago.
    Older,
    /// It has another key than the bound one.
    OtherKey,
    /// The stored state is older than it.
    Newer,
    /// There is none yet: the proxy's Azure machine requested one for another key.
    MachineJoinsAgain,
}

impl CertificateAlarm {
    /// All of them, the most alarming first.
    const ALL: [Self; 4] = [Self::Older, Self::OtherKey, Self::MachineJoinsAgain, Self::Newer];

    /// The alarm about a certificate that was recognized so, if it is alarming.
    pub(crate) fn of(recognition: CertificateRecognition) -> Option<Self> {
        match recognition {
            CertificateRecognition::Older => Some(Self::Older),
            CertificateRecognition::OtherKey => Some(Self::OtherKey),
            CertificateRecognition::Newer => Some(Self::Newer),
            CertificateRecognition::Current | CertificateRecognition::Predecessor => None,
        }
    }
}

/// The last alarm of one kind about a proxy.
#[derive(Debug, Clone)]
struct Raised {
    proxy: ProxyId,
    name: String,
    from: SocketAddr,
    at: Timestamp,
    count: u64,
}

/// The alarms about certificates since the start.
#[derive(Debug, Default)]
pub(crate) struct Alarms(Mutex<BTreeMap<(CertificateAlarm, ProxyId), Raised>>);

impl Alarms {
    /// Raises an alarm about a certificate of a proxy. Logs only the first one of its kind, and returns whether this is
    /// the first.
    pub(crate) fn raise(
        &self,
        record: &JoinRecord,
        alarm: CertificateAlarm,
        from: SocketAddr,
        now: Timestamp,
    ) -> bool {
        let mut raised = self.0.lock();
        raised.retain(|_, one| !is_over(one, now));
        let key = (alarm, record.id);
        let of_kind = || raised.iter().filter(|((kind, _), _)| *kind == alarm);
        if !raised.contains_key(&key) && of_kind().count() >= MAX_ALARMS {
            let oldest = of_kind().min_by_key(|(_, one)| one.at).map(|(key, _)| *key);
            oldest.map(|oldest| raised.remove(&oldest));
        }
        let name = record.display_name().to_string();
        let one = raised.entry(key).or_insert_with(|| {
            if alarm == CertificateAlarm::MachineJoinsAgain {
                tracing::error!(proxy = %name, address = %from, "the azure machine of a proxy requested another enrollment");
            } else {
                tracing::error!(proxy = %name, address = %from, ?alarm, "a certificate was presented that should not be in use");
            }
            Raised { proxy: record.id, name, from, at: now, count: 0 }
        });
        (one.from, one.at) = (from, now);
        one.count += 1;
        one.count == 1
    }

    /// The findings about certificates and about these tokens. A revocation ends those about the proxy. `name_of` is the
    /// name of an enrolled proxy.
    pub(crate) fn findings(
        &self,
        misused: &[JoinToken],
        is_revoked: impl Fn(ProxyId) -> bool,
        name_of: impl Fn(ProxyId) -> Option<ProxyName>,
        now: Timestamp,
    ) -> Vec<Finding> {
        let mut findings: Vec<_> =
            misused.iter().take(NAMED).filter_map(|token| of_token(token, &name_of)).collect();
        let raised = self.0.lock();
        for kind in CertificateAlarm::ALL {
            let of_kind = raised.iter().filter(|((alarm, id), one)| {
                *alarm == kind && !is_over(one, now) && !is_revoked(*id)
            });
            findings.extend(of_kind.take(NAMED).map(|(_, one)| of_certificate(kind, one)));
        }
        findings
    }

    /// The findings about the certificates of one proxy.
    pub(crate) fn of_proxy(&self, id: ProxyId, now: Timestamp) -> Vec<Finding> {
        let raised = self.0.lock();
        let findings = CertificateAlarm::ALL.into_iter().filter_map(|kind| {
            let one = raised.get(&(kind, id)).filter(|one| !is_over(one, now))?;
            Some(of_certificate(kind, one))
        });
        findings.collect()
    }
}

fn is_over(raised: &Raised, now: Timestamp) -> bool {
    now.duration_since(raised.at) > RETENTION
}

fn of_token(token: &JoinToken, name_of: impl Fn(ProxyId) -> Option<ProxyName>) -> Option<Finding> {
    let (used, misused) = (token.used.as_ref()?, token.misused.as_ref()?);
    let name = name_of(used.proxy).map_or_else(|| used.proxy.to_string(), |name| name.to_string());
    let text = format!(
        "token {} was presented a second time by {} on {:.0}: it had enrolled proxy {name} from {} on {:.0}",
        token.id, misused.from, misused.at, used.from, used.at
    );
    let help = format!(
        "find out who copied the token: if {} is not the intended machine, run `ironmesh proxy revoke {name}` and enroll the intended one; then `ironmesh proxy token revoke {}` ends this finding",
        used.from.ip(),
        token.id
    );
    let object = ObjectRef::Token(token.id.clone());
    Some(Finding::error(TOKEN_PRESENTED_AGAIN, None, text).object(object).help(help))
}

fn of_certificate(kind: CertificateAlarm, raised: &Raised) -> Finding {
    let Raised { proxy, name, from, at, count } = raised;
    let times = match count {
        1 => String::new(),
        count => format!(" ({count} times)"),
    };
    match kind {
        CertificateAlarm::Newer => {
            let text = format!(
                "proxy {name} at {from} has a certificate that is newer than the stored state{times}: the state was restored from an older copy"
            );
            let help = "the certificate is accepted; check that no revocation since that copy is missing (`ironmesh journal --kind revoke`)";
            Finding::warning(CERTIFICATE_NEWER_THAN_STATE, None, text).object(*proxy).help(help)
        }
        CertificateAlarm::MachineJoinsAgain => {
            let text = format!(
                "the Azure machine of proxy {name} requested another enrollment with a different key, from {from} on {at:.0}{times}, and Azure has not reimaged it since its enrollment"
            );
            let help = format!(
                "if its agent lost its folder, reimage the machine or enroll it by a token; otherwise it was a different program of the machine: `ironmesh proxy revoke {name}`, and reimage it"
            );
            Finding::error(AZURE_MACHINE_JOINS_AGAIN, None, text).object(*proxy).help(help)
        }
        CertificateAlarm::Older | CertificateAlarm::OtherKey => {
            let what = match kind {
                CertificateAlarm::OtherKey => {
                    format!("a certificate of proxy {name} for a different key")
                }
                _ => format!("a certificate that proxy {name} has replaced"),
            };
            let text = format!(
                "{what} was presented by {from} on {at:.0}{times}: probably a copy of the machine's files"
            );
            let help = format!(
                "if the machine was restored from a backup, enroll it again with a new token, or in Azure by a reimage; otherwise someone has its key: `ironmesh proxy revoke {name}`, and enroll it again"
            );
            Finding::error(OLD_CERTIFICATE_PRESENTED, None, text).object(*proxy).help(help)
        }
    }
}
