//! `[azure]`: how the control plane reaches Azure to discover endpoints. Policy decides whether it queries
//! Azure.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{Domain, Finding, Spot};

use super::{authority, read_path};
use ironmesh_config_language::azure::{read_guid, read_resource_group};
use ironmesh_config_language::codes;
use ironmesh_config_language::duration;
use ironmesh_config_language::table::{FindingReported, Table, Value};

/// How the control plane reaches Azure. Paths are as written, and no value is a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureSettings {
    /// The default subscription of queries in policy.
    pub subscription: Option<Arc<str>>,
    /// The default resource group of queries in policy.
    pub resource_group: Option<Arc<str>>,
    /// The cloud of Azure.
    pub cloud: AzureCloudSetting,
    /// The identity that the control plane uses in Azure.
    pub credential: AzureCredentialSetting,
    /// The time from an answer to the next query, plus up to an eighth.
    pub interval: Duration,
    /// The most calls to Azure within an hour. If policy needs many lists, each is queried less often.
    pub reads_per_hour: u32,
    /// Whether Azure Resource Graph is queried for the machines of scale sets and for the power state of
    /// others. It has limits of its own, and its answers are some seconds old.
    pub resource_graph: bool,
    /// Which attested documents of machines are trusted, by which machines join without a token.
    pub attestation: AttestationSettings,
}

/// The trust in Azure's attested documents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttestationSettings {
    /// The folder of the root certificates, or their file. By default the roots of Azure that the system trusts.
    pub roots: Option<PathBuf>,
    /// The folder of the intermediate certificates, or their file. Azure sends none, and the control plane fetches none.
    pub intermediates: Option<PathBuf>,
    /// The domain of the signers. By default that of the cloud; a cloud of other addresses has none.
    pub signer_domain: Option<String>,
}

/// A cloud of Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AzureCloudSetting {
    /// The public cloud.
    Public,
    /// Azure Government, of the United States.
    UsGovernment,
    /// Azure in China.
    China,
    /// Any other cloud that answers the same calls as Azure, by its addresses.
    Custom {
        /// The address of its resource manager.
        resource_manager: String,
        /// The address that issues its tokens.
        login: String,
        /// The address of the instance metadata service, which issues tokens of managed identities; by
        /// default that of Azure.
        metadata: Option<String>,
        /// The file of the authorities that issue the certificates of these addresses; by default those that
        /// the system trusts.
        ca: Option<PathBuf>,
    },
}

/// Makes a named cloud.
type Named = fn() -> AzureCloudSetting;

/// The named clouds.
const NAMED: [(&str, Named); 3] = [
    ("public", || AzureCloudSetting::Public),
    ("us_government", || AzureCloudSetting::UsGovernment),
    ("china", || AzureCloudSetting::China),
];

/// The identity that the control plane uses in Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AzureCredentialSetting {
    /// A managed identity of the machine.
    ManagedIdentity {
        /// The client ID of the identity, if the machine has several.
        client_id: Option<Arc<str>>,
    },
    /// A token of another issuer that Azure trusts.
    WorkloadIdentity {
        /// The tenant of the application.
        tenant: Arc<str>,
        /// The application.
        client_id: Arc<str>,
        /// The file of the token.
        token_file: PathBuf,
    },
    /// The secret of an application.
    ClientSecret {
        /// The tenant of the application.
        tenant: Arc<str>,
        /// The application.
        client_id: Arc<str>,
        /// The file of the secret.
        secret_file: PathBuf,
    },
}

impl AzureSettings {
    /// The domain of the signers of attested documents; none for a cloud of other addresses that sets none.
    pub fn signer_domain(&self) -> Option<&str> {
        let of_cloud = match &self.cloud {
            AzureCloudSetting::Public => Some("metadata.azure.com"),
            AzureCloudSetting::UsGovernment => Some("metadata.azure.us"),
            AzureCloudSetting::China => Some("metadata.azure.cn"),
            AzureCloudSetting::Custom { .. } => None,
        };
        self.attestation.signer_domain.as_deref().or(of_cloud)
    }
}

impl Default for AzureSettings {
    fn default() -> Self {
        Self {
            subscription: None,
            resource_group: None,
            cloud: AzureCloudSetting::Public,
            credential: AzureCredentialSetting::ManagedIdentity { client_id: None },
            interval: Duration::from_secs(30),
            // A twelfth of the requests that Azure allows a client in a subscription.
            reads_per_hour: 1000,
            resource_graph: false,
            attestation: AttestationSettings::default(),
        }
    }
}

/// The keys of secrets, by table, with the key that names a file instead.
const SECRETS: [(&str, &[&str], &str); 3] = [
    ("", &["secret", "password", "token"], SECRET_FILE),
    ("client_secret", &["secret", "client_secret", "password", "value"], SECRET_FILE),
    ("workload_identity", &["token", "assertion", "client_assertion"], TOKEN_FILE),
];

const SECRET_FILE: &str =
    "`secret_file = \"/etc/ironmesh/azure-secret\"` in `[azure.client_secret]`";
const TOKEN_FILE: &str =
    "`token_file = \"/run/ironmesh/azure-token\"` in `[azure.workload_identity]`";

pub(super) fn read(value: Value<'_>) -> Result<AzureSettings, FindingReported> {
    let before = value.findings_count();
    let secret = find_secret(value);
    let settings = read_table(value);
    match secret {
        None => settings,
        Some((key, spot, instead)) => {
            // Findings show their lines, and are logged. Another problem in this table may be on the line of
            // the secret, so only this finding is reported.
            value.truncate_findings(before);
            let message = format!("the settings hold a secret, `{key}` at {spot}");
            let finding = Finding::error(codes::INVALID_VALUE, None, message);
            let help = "write it to a file that the control plane alone may read, and name that: ";
            Err(value.report(finding.help(format!("{help}{instead}"))))
        }
    }
}

/// The key and the spot of a secret, if one is written in the settings.
fn find_secret(value: Value<'_>) -> Option<(&'static str, Spot, &'static str)> {
    let mut all = value.tables_if_any();
    let table = all.first_mut()?;
    for (below, keys, instead) in SECRETS {
        if below.is_empty() {
            let mut found =
                keys.iter().filter_map(|key| Some((*key, table.rejected_key(key)?, instead)));
            if let Some(found) = found.next() {
                return Some(found);
            }
            continue;
        }
        let Some(written) = table.get(below) else { continue };
        if written.string_if_any().is_some() {
            return Some((below, written.spot(), instead));
        }
        let mut inner = written.tables_if_any();
        let inner = inner.first_mut();
        let found = inner.and_then(|table| {
            keys.iter().find_map(|key| Some((*key, table.rejected_key(key)?, instead)))
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

fn read_table(value: Value<'_>) -> Result<AzureSettings, FindingReported> {
    let mut table = value.table("`azure`")?;
    let subscription = table.optional("subscription", |value| read_guid(value, "a subscription"));
    let resource_group = table.optional("resource_group", read_resource_group);
    let cloud = table.optional("cloud", read_cloud);
    let managed = table.optional("managed_identity", read_managed_identity);
    let workload = table.optional("workload_identity", |value| {
        let mut table = value.table("`azure.workload_identity`")?;
        let (tenant, client_id) = read_application(&mut table);
        let token_file = table.required("token_file", read_path);
        table.finish();
        let (tenant, client_id, token_file) = (tenant?, client_id?, token_file?);
        Ok(AzureCredentialSetting::WorkloadIdentity { tenant, client_id, token_file })
    });
    let secret = table.optional("client_secret", |value| {
        let mut table = value.table("`azure.client_secret`")?;
        let (tenant, client_id) = read_application(&mut table);
        let secret_file = table.required("secret_file", read_path);
        table.finish();
        let (tenant, client_id, secret_file) = (tenant?, client_id?, secret_file?);
        Ok(AzureCredentialSetting::ClientSecret { tenant, client_id, secret_file })
    });
    let range = Duration::from_secs(1)..=Duration::from_secs(60 * 60);
    let interval = table.optional("interval", |value| duration::read(value, &range));
    // Azure allows no client more than the upper bound.
    let reads_per_hour =
        table.optional("reads_per_hour", |value| value.integer(codes::INVALID_VALUE, 100..=12_000));
    let resource_graph = table.optional("resource_graph", Value::boolean);
    let attestation = table.optional("attestation", read_attestation);
    table.finish();
    let credentials = [managed?, workload?, secret?];
    let mut credentials = credentials.into_iter().flatten();
    let credential = credentials.next();
    if credentials.next().is_some() {
        let finding =
            value.error(codes::INVALID_VALUE, "the control plane needs exactly one Azure identity");
        let help = "leave one of `managed_identity`, `workload_identity` and `client_secret`";
        return Err(value.report(finding.label("several identities").help(help)));
    }
    let default = AzureSettings::default();
    Ok(AzureSettings {
        subscription: subscription?,
        resource_group: resource_group?,
        cloud: cloud?.unwrap_or(default.cloud),
        credential: credential.unwrap_or(default.credential),
        interval: interval?.unwrap_or(default.interval),
        reads_per_hour: reads_per_hour?.unwrap_or(default.reads_per_hour),
        resource_graph: resource_graph?.unwrap_or(default.resource_graph),
        attestation: attestation?.unwrap_or(default.attestation),
    })
}

fn read_attestation(value: Value<'_>) -> Result<AttestationSettings, FindingReported> {
    let mut table = value.table("`azure.attestation`")?;
    let roots = table.optional("roots", read_path);
    let intermediates = table.optional("intermediates", read_path);
    let signer_domain = table.optional("signer_domain", |value| {
        let text = value.string()?.to_ascii_lowercase();
        // Each server of a top-level domain has a certificate.
        if Domain::new(&text).is_ok() && text.contains('.') {
            return Ok(text);
        }
        let message =
            format!("`signer_domain` must be a domain below a top-level domain: `{text}`");
        let finding = value.error(codes::INVALID_VALUE, message).label("not such a domain");
        Err(value.report(finding.help("Azure's public cloud has `metadata.azure.com`")))
    });
    table.finish();
    Ok(AttestationSettings {
        roots: roots?,
        intermediates: intermediates?,
        signer_domain: signer_domain?,
    })
}

fn read_managed_identity(value: Value<'_>) -> Result<AzureCredentialSetting, FindingReported> {
    let mut table = value.table("`azure.managed_identity`")?;
    let client_id = table.optional("client_id", |value| read_guid(value, "a managed identity"));
    table.finish();
    Ok(AzureCredentialSetting::ManagedIdentity { client_id: client_id? })
}

/// Reads `tenant` and `client_id`.
fn read_application(
    table: &mut Table<'_>,
) -> (Result<Arc<str>, FindingReported>, Result<Arc<str>, FindingReported>) {
    let tenant = table.required("tenant", |value| {
        let text = value.string()?.to_ascii_lowercase();
        // (A GUID would be a domain, too.)
        if Domain::new(&text).is_ok() {
            return Ok(text.into());
        }
        let message = format!("`tenant` must be a GUID or a domain: `{text}`");
        let finding = value.error(codes::INVALID_VALUE, message).label("not a tenant");
        let help =
            "write it as in `00000000-1111-2222-3333-444444444444` or `contoso.onmicrosoft.com`";
        Err(value.report(finding.help(help)))
    });
    (tenant, table.required("client_id", |value| read_guid(value, "an application")))
}

fn read_cloud(value: Value<'_>) -> Result<AzureCloudSetting, FindingReported> {
    if !value.is_table() {
        return Ok(value.word("cloud", &NAMED)?());
    }
    let mut table = value.table("`azure.cloud`")?;
    let resource_manager = table.required("resource_manager", read_url);
    let login = table.required("login", read_url);
    let metadata = table.optional("metadata", read_metadata_url);
    let ca = table.optional("ca", read_path);
    table.finish();
    let (resource_manager, login, metadata) = (resource_manager?, login?, metadata?);
    Ok(AzureCloudSetting::Custom { resource_manager, login, metadata, ca: ca? })
}

/// Reads an address that receives or issues tokens.
fn read_url(value: Value<'_>) -> Result<String, FindingReported> {
    let text = value.string()?;
    let Some(url) = Url::read(text) else {
        let message = format!("`{}` must be `https://host`: `{text}`", value.key());
        let finding = value.error(codes::INVALID_VALUE, message).label("not `https://host`");
        let help = "write it as in `https://management.azure.example`";
        return Err(value.report(finding.help(help)));
    };
    if !url.is_tls && !url.is_here {
        let message = format!("`{}` must be `https`: `{text}`", value.key());
        let finding = value.error(codes::INVALID_VALUE, message).label("plaintext");
        let help =
            "tokens would go over the network in the clear; only on this machine it may be `http`";
        return Err(value.report(finding.help(help)));
    }
    Ok(text.to_owned())
}

/// Reads the address of the instance metadata service. Requests to it never leave the machine.
fn read_metadata_url(value: Value<'_>) -> Result<String, FindingReported> {
    let text = value.string()?;
    if Url::read(text).is_some_and(|url| url.is_tls || url.is_here || url.is_link_local) {
        return Ok(text.to_owned());
    }
    let message =
        format!("`{}` must be an address on this machine or its link: `{text}`", value.key());
    let finding = value.error(codes::INVALID_VALUE, message).label("somewhere else");
    Err(value.report(finding.help("where Azure has it everywhere: `http://169.254.169.254`")))
}

/// The parts of a URL that decide whether it is accepted.
struct Url {
    is_tls: bool,
    is_here: bool,
    is_link_local: bool,
}

impl Url {
    /// Reads `http(s)://host[:port]`.
    fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (is_tls, default) = match scheme {
            "https" => (true, 443),
            "http" => (false, 80),
            _ => return None,
        };
        let (host, _) = authority(rest).or_else(|| authority(&format!("{rest}:{default}")))?;
        let address = host.parse::<IpAddr>().ok();
        let is_link_local = address.is_some_and(|address| match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        });
        let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        Some(Self { is_tls, is_here, is_link_local })
    }
}
