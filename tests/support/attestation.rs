//! Azure's attestation of machines: a test CA whose documents have the form of Azure's, and the
//! metadata services of machines, as strict as the real one.
//!
//! Nothing of it is secret: each test makes its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use fs_err as fs;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, SigningKey as _,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// The signer of documents of Azure's public cloud.
pub const SIGNER: &str = "westeurope.metadata.azure.com";

/// A root, an intermediate, and the signer of documents.
#[derive(Debug)]
pub struct AttestationCa {
    root: String,
    intermediate: String,
    signer: Vec<u8>,
    key: KeyPair,
}

/// The content of a document, which tests change.
#[derive(Debug, Clone)]
pub struct DocumentContent {
    /// The nonce that the machine requested.
    pub nonce: String,
    /// The machine.
    pub vm_id: Uuid,
    /// Its subscription.
    pub subscription: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl AttestationCa {
    /// Makes a CA whose signer has this name. The names of the certificates begin with `ca`.
    pub fn new(ca: &str, signer: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = authority(&format!("{ca} root"));
        let root = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let params = authority(&format!("{ca} intermediate"));
        let intermediate = params.signed_by(&key, &issuer).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
        let mut params = named(signer);
        params.subject_alt_names =
            CertificateParams::new([signer.to_owned()]).unwrap().subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let signer = params.signed_by(&key, &issuer).unwrap().der().to_vec();
        Self { root, intermediate, signer, key }
    }

    /// Writes the folders `roots` and `intermediates` for the control plane.
    pub fn write(&self, folder: &Path) {
        for (name, pem) in [("roots", &self.root), ("intermediates", &self.intermediate)] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("azure.pem"), pem).unwrap();
        }
    }

    /// Signs a document: PKCS#7 in DER, without signed attributes, as base64.
    pub fn sign(&self, content: &DocumentContent) -> String {
        let content = content.json();
        let signature = self.key.sign(content.as_bytes()).unwrap();
        let (issuer, serial) = issuer_and_serial(&self.signer);
        let sha256 = sequence(&[&tlv(0x06, b"\x60\x86\x48\x01\x65\x03\x04\x02\x01"), &NULL]);
        let rsa = sequence(&[&tlv(0x06, b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01"), &NULL]);
        let info = sequence(&[
            &tlv(0x02, &[1]),
            &sequence(&[issuer, serial]),
            &sha256,
            &rsa,
            &tlv(0x04, &signature),
        ]);
        let data = tlv(0x06, b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01");
        let signed = sequence(&[
            &tlv(0x02, &[1]),
            &tlv(0x31, &sha256),
            &sequence(&[&data, &tlv(0xa0, &tlv(0x04, content.as_bytes()))]),
            &tlv(0xa0, &self.signer),
            &tlv(0x31, &info),
        ]);
        let kind = tlv(0x06, b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02");
        data_encoding::BASE64.encode(&sequence(&[&kind, &tlv(0xa0, &signed)]))
    }
}

impl DocumentContent {
    /// The content for a machine and a nonce, valid for six hours.
    pub fn new(vm_id: Uuid, subscription: &str, nonce: &str) -> Self {
        let now = Timestamp::now();
        Self {
            nonce: nonce.to_owned(),
            vm_id,
            subscription: subscription.to_owned(),
            created_at: now - SignedDuration::from_secs(1),
            expires_at: now + SignedDuration::from_hours(6),
        }
    }

    fn json(&self) -> String {
        let time = |time: Timestamp| time.strftime("%m/%d/%y %H:%M:%S -0000").to_string();
        json!({
            "licenseType": "", "nonce": self.nonce, "sku": "22_04-lts-gen2",
            "plan": { "name": "", "product": "", "publisher": "" },
            "subscriptionId": self.subscription, "vmId": self.vm_id,
            "timeStamp": { "createdOn": time(self.created_at), "expiresOn": time(self.expires_at) },
        })
        .to_string()
    }
}

/// The metadata service of one machine. It ends when it is dropped.
#[derive(Debug)]
pub struct MachineMetadata {
    address: SocketAddr,
    served: Arc<Served>,
    _task: AbortOnDropHandle<()>,
}

/// Makes the document of a content in a way of its own.
type Forge = Box<dyn Fn(&AttestationCa, DocumentContent) -> String + Send>;

struct Served {
    ca: Arc<AttestationCa>,
    vm_id: Uuid,
    subscription: String,
    documents: Mutex<Vec<String>>,
    forge: Mutex<Option<Forge>>,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("vm_id", &self.vm_id).finish_non_exhaustive()
    }
}

impl MachineMetadata {
    /// Starts the service of a machine.
    pub async fn start(ca: &Arc<AttestationCa>, vm_id: Uuid, subscription: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(Served {
            ca: Arc::clone(ca),
            vm_id,
            subscription: subscription.to_owned(),
            documents: Mutex::default(),
            forge: Mutex::default(),
        });
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&served));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, served, _task: AbortOnDropHandle::new(task) }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The documents so far.
    pub fn documents(&self) -> Vec<String> {
        self.served.documents.lock().clone()
    }

    /// Makes the documents in another way from now on, as a forger between the machine and the control plane would.
    pub fn forge(
        &self,
        forge: impl Fn(&AttestationCa, DocumentContent) -> String + Send + 'static,
    ) {
        *self.served.forge.lock() = Some(Box::new(forge));
    }
}

/// `GET /metadata/attested/document`.
async fn answer(State(served): State<Arc<Served>>, request: Request) -> Response {
    let bad = |error: &str| {
        (StatusCode::BAD_REQUEST, json!({ "error": error }).to_string()).into_response()
    };
    let headers = request.headers();
    if headers.get("metadata").is_none_or(|value| value != "true") {
        return bad("Bad request. Required metadata header not specified");
    }
    if headers.contains_key("x-forwarded-for") {
        return bad("Bad request. x-forwarded-for is not accepted");
    }
    if request.uri().path() != "/metadata/attested/document" || request.method() != "GET" {
        return StatusCode::NOT_FOUND.into_response();
    }
    let query = request.uri().query().unwrap_or_default();
    let parameters: BTreeMap<_, _> =
        query.split('&').filter_map(|parameter| parameter.split_once('=')).collect();
    if parameters.get("api-version") != Some(&"2021-02-01") {
        return bad("Bad request. api-version is invalid or was not specified in the request");
    }
    let nonce = parameters.get("nonce").copied().unwrap_or_default();
    if !(1..=32).contains(&nonce.len()) || !nonce.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return bad("Bad request. The nonce has more than 32 letters and digits");
    }
    let content = DocumentContent::new(served.vm_id, &served.subscription, nonce);
    let document = match &*served.forge.lock() {
        Some(forge) => forge(&served.ca, content),
        None => served.ca.sign(&content),
    };
    served.documents.lock().push(document.clone());
    let body = json!({ "encoding": "pkcs7", "signature": document });
    ([("content-type", "application/json")], body.to_string()).into_response()
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2060, 1, 1);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// The issuer and the serial number of a certificate, as they stand in its DER.
fn issuer_and_serial(certificate: &[u8]) -> (&[u8], &[u8]) {
    let (whole, _) = element(certificate);
    let (to_be_signed, _) = element(content(whole));
    let (_version, rest) = element(content(to_be_signed));
    let (serial, rest) = element(rest);
    let (_algorithm, rest) = element(rest);
    let (issuer, _) = element(rest);
    (issuer, serial)
}

/// Splits DER behind its first element.
fn element(der: &[u8]) -> (&[u8], &[u8]) {
    let (header, length) = header(der);
    der.split_at(header + length)
}

fn content(element: &[u8]) -> &[u8] {
    element.split_at(header(element).0).1
}

/// The lengths of an element's header and content.
fn header(der: &[u8]) -> (usize, usize) {
    match der {
        [_, 0x82, high, low, ..] => (4, usize::from(u16::from_be_bytes([*high, *low]))),
        [_, 0x81, length, ..] => (3, usize::from(*length)),
        [_, length, ..] => (2, usize::from(*length)),
        _ => panic!("no DER"),
    }
}

const NULL: [u8; 2] = [0x05, 0x00];

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x30, &parts.concat())
}

/// An element of up to 64 KiB.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let header = match (high, low) {
        (0, ..0x80) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [header.as_slice(), content].concat()
}
