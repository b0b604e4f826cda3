//! Enrollment of a machine, by a one-time token or by an attested document of Azure.

use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ironmesh_catalog::{NodeMetadata, ProxyId, ProxyName, Secret, ServiceName, TrustDomain};
use ironmesh_cert::{BearerToken, TokenUsage};
use ironmesh_enrollment::{
    AzureJoin, CaHash, ControlPlaneAddress, EnrollRequest, Enrolled, EnrollmentClient,
    EnrollmentClientError, MetadataService, RetryNotice, ServerTrust,
};
use ironmesh_sidecar::{Admin, Workload, envoy};
use ironmesh_sidecar_folder::{
    CommonFiles, EnrollmentState, NewFolder, NewProxy, ProxyFilesError, write_bootstraps,
};
use jiff::Timestamp;

use crate::error::AgentError;
use crate::mesh_check::ca_hashes;
use crate::pending_key::PendingKey;

/// The name of the kept key of a join without a token.
const AZURE: &str = "azure";

/// The time limit of a join by an attested document: the metadata service may be updated for 70 seconds, and Azure may
/// show a new machine late.
const AZURE_LIMIT: Duration = Duration::from_secs(180);

/// The inputs of a join.
#[derive(Debug)]
pub struct MachineJoin<'a> {
    /// Where the control plane's replicas serve the machines' API, at least one.
    pub addresses: Vec<ControlPlaneAddress>,
    /// The hashes of the mesh's CA, at least one.
    pub ca_hashes: Vec<CaHash>,
    /// How the machine proves that it may join.
    pub proof: JoinProof,
    /// The address to which callers connect. Default: the address from which the control plane sees this machine.
    pub address: Option<IpAddr>,
    /// The name of the proxy, for display. Default: a name after its service.
    pub name: Option<ProxyName>,
    /// The settings of the machine's own listeners.
    pub metadata: &'a NodeMetadata,
    /// The access to Envoy's admin interface.
    pub admin: Admin,
    /// The folder of the proxy, which must not exist yet.
    pub out: &'a Path,
    /// Called once if the first attempt fails and others follow.
    pub retry_notice: RetryNotice,
}

/// How a machine proves that it may join.
#[derive(Debug, Clone)]
pub enum JoinProof {
    /// By a one-time token.
    Token(Secret),
    /// By a document that Azure signs for the machine.
    Azure(MetadataService),
}

/// The most bytes that are read of a token file: more than any token has.
const MAX_TOKEN_FILE: u64 = 4096;

impl JoinProof {
    /// Reads the token in a file, or on stdin if the file is `-`.
    pub fn read_token(file: &Path) -> io::Result<Self> {
        let mut text = String::new();
        let read = if file == Path::new("-") {
            io::stdin().take(MAX_TOKEN_FILE).read_to_string(&mut text)
        } else {
            fs_err::File::open(file)
                .and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text))
        };
        let secret = Secret::new(text);
        read.map(|_| Self::Token(secret))
    }
}

/// A newly enrolled machine, by its proxy.
#[derive(Debug, Clone)]
pub struct EnrolledMachine {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// Its first service.
    pub service: ServiceName,
    /// When its certificate expires.
    pub expires_at: Timestamp,
    /// Its folder, as an absolute path.
    pub folder: PathBuf,
    /// The command by which a person starts its sidecar.
    pub command: String,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Enrolls this machine, and writes the folder of its proxy, which appears complete or not at all.
///
/// The key is made and kept on the disk before the proof is sent. If the response is lost, the same call again uses
/// the same key, and gets the same certificate for five minutes.
pub async fn join(join: MachineJoin<'_>) -> Result<EnrolledMachine, AgentError> {
    let token = match &join.proof {
        JoinProof::Token(token) => {
            Some(BearerToken::parse(TokenUsage::Join, token).ok_or(AgentError::MalformedToken)?)
        }
        JoinProof::Azure(_) => None,
    };
    let client = EnrollmentClient::new(join.addresses.clone(), ServerTrust::Hashes(join.ca_hashes))
        .map_err(AgentError::Enroll)?
        .with_retry_notice(join.retry_notice);
    // An unwritable folder thus fails before the token is used.
    let folder = NewFolder::create(join.out, 0o700)?;
    if join.admin == Admin::Socket {
        envoy::check_admin_socket_path(folder.path())?;
    }
    let proof = token.as_ref().map_or_else(|| AZURE.to_owned(), |token| token.id().to_string());
    let key = PendingKey::open(folder.path(), &proof)?;
    let certificate_request = key.certificate_request().to_owned();
    let (address, name) = (join.address, join.name);
    let enrolled = match (&join.proof, token) {
        (JoinProof::Azure(metadata), _) => {
            let metadata = *metadata;
            let azure = AzureJoin { metadata, certificate_request, address, name };
            client.with_time_limit(AZURE_LIMIT).enroll_azure(&azure).await
        }
        (JoinProof::Token(_), Some(token)) => {
            let token = token.text();
            client.enroll(&EnrollRequest { token, certificate_request, address, name }).await
        }
        (JoinProof::Token(_), None) => return Err(AgentError::MalformedToken),
    };
    let enrolled = match enrolled {
        Ok(enrolled) => enrolled,
        // The control plane has decided: the key is of no more use.
        Err(error @ EnrollmentClientError::Rejected { .. }) if error.is_final() => {
            key.remove()?;
            return Err(AgentError::Enroll(error));
        }
        Err(error) if error.is_untrusted_server() => return Err(AgentError::Enroll(error)),
        // (An earlier run may have sent a kept key.)
        Err(source) if source.was_sent() || !key.is_new() => {
            return Err(AgentError::EnrollLater { key: key.path().to_owned(), source });
        }
        Err(error) => {
            key.remove()?;
            return Err(AgentError::Enroll(error));
        }
    };
    let machine =
        write_files(&folder, &key, &enrolled, &join.addresses, join.metadata, join.admin)?;
    folder.finish()?;
    key.remove()?;
    Ok(machine)
}

fn write_files(
    folder: &NewFolder,
    key: &PendingKey,
    enrolled: &Enrolled,
    addresses: &[ControlPlaneAddress],
    metadata: &NodeMetadata,
    admin: Admin,
) -> Result<EnrolledMachine, AgentError> {
    let incomplete = |missing: &str| AgentError::Content {
        path: folder.path().to_owned(),
        problem: format!("the response of the control plane has no {missing}"),
    };
    let service = enrolled.services.first().ok_or_else(|| incomplete("service"))?;
    let trust_domain = TrustDomain::of(&enrolled.control_plane_id);
    let trust_domain = trust_domain.ok_or_else(|| incomplete("SPIFFE ID"))?;
    let addresses: Vec<_> =
        addresses.iter().map(|address| (address.host.clone(), address.port)).collect();
    let common = CommonFiles {
        roots: &enrolled.roots,
        enrollment: &EnrollmentState {
            ca_hashes: ca_hashes(&enrolled.roots),
            ..EnrollmentState::new(&addresses, Some(enrolled.issued_at))
        },
    };
    let proxy = NewProxy { name: String::new(), address: enrolled.address };
    let workload = Workload {
        driver: enrolled.driver.clone(),
        id: enrolled.id,
        name: enrolled.name.clone(),
        service: service.clone(),
        more_services: enrolled.services.iter().skip(1).cloned().collect(),
        address: enrolled.address,
        metadata: metadata.clone(),
        admin,
        control_plane: enrolled.control_plane.clone(),
        control_plane_id: trust_domain.control_plane().0,
        folder: folder.path().to_owned(),
    };
    let written = folder.write(Path::new(envoy::KEY), key.key().expose(), 0o600);
    written.map_err(ProxyFilesError::from)?;
    let commands = write_bootstraps(folder, &[(&proxy, workload, &enrolled.certificate)], &common)?;
    Ok(EnrolledMachine {
        id: enrolled.id,
        name: enrolled.name.clone(),
        service: service.clone(),
        expires_at: enrolled.expires_at,
        folder: folder.path().to_owned(),
        command: commands.into_iter().next().unwrap_or_default(),
        notes: enrolled.notes.clone(),
    })
}
