//! The files of new proxies: first the keys, and after the enrollment the certificates and bootstraps.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ironmesh_cert::{RequestError, generate_proxy_key_and_csr};
use ironmesh_sidecar::{DRIVERS, DriverSettings, PatchError, UnknownDriver, Workload, envoy};

use crate::all_cores::on_all_cores;
use crate::enrollment_state::{ENROLLMENT, EnrollmentState};
use crate::patch_folder::WORKLOAD;
use crate::{NewFolder, NewFolderError, start_command};

/// A proxy to enroll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProxy {
    /// The name of its folder below the new folder; empty if its folder is the new folder itself.
    pub name: String,
    /// The address to which callers connect.
    pub address: IpAddr,
}

/// Too few addresses follow the first one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{count} consecutive addresses from {first} exceed the address range")]
pub struct AddressRangeExceeded {
    first: IpAddr,
    count: u32,
}

/// The reason why the files of a proxy were not written.
#[derive(Debug, thiserror::Error)]
pub enum ProxyFilesError {
    /// A file or a folder cannot be created.
    #[error(transparent)]
    Folder(#[from] NewFolderError),
    /// No key can be generated.
    #[error(transparent)]
    Key(#[from] RequestError),
    /// The control plane chose a driver that this version does not have.
    #[error("cannot write the files of the proxy: upgrade ironmesh on this machine")]
    Driver(#[from] UnknownDriver),
    /// The driver makes no files.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// A thread ended early.
    #[error("a thread panicked")]
    ThreadPanicked,
}

/// The content that the files of all proxies of one enrollment share.
#[derive(Debug, Clone)]
pub struct CommonFiles<'a> {
    /// The root certificates of the mesh, in PEM.
    pub roots: &'a str,
    /// What the machines need to renew their certificates. Without addresses it is not written.
    pub enrollment: &'a EnrollmentState,
}

impl NewProxy {
    /// The proxies to enroll, at consecutive addresses from `first` on, each with a numbered folder. Without a count
    /// it is one proxy, whose folder is the new folder itself.
    pub fn consecutive(
        first: IpAddr,
        count: Option<u32>,
    ) -> Result<Vec<Self>, AddressRangeExceeded> {
        let Some(count) = count else {
            return Ok(vec![Self { name: String::new(), address: first }]);
        };
        let width = count.to_string().len().max(4);
        let proxy = |index: u32| {
            let address = match first {
                IpAddr::V4(first) => {
                    first.to_bits().checked_add(index).map(|bits| IpAddr::V4(bits.into()))
                }
                IpAddr::V6(first) => {
                    first.to_bits().checked_add(index.into()).map(|bits| IpAddr::V6(bits.into()))
                }
            };
            let address = address.ok_or(AddressRangeExceeded { first, count })?;
            Ok(Self { name: format!("{:0width$}", index + 1), address })
        };
        (0..count).map(proxy).collect()
    }

    /// The final path of its folder.
    pub fn folder(&self, folder: &NewFolder) -> PathBuf {
        match &*self.name {
            "" => folder.path().to_owned(),
            name => folder.path().join(name),
        }
    }
}

/// Creates the folder and the key of each proxy, and returns their certificate signing requests. An unwritable folder
/// thus fails before any enrollment.
pub fn create_keys(
    folder: &NewFolder,
    proxies: &[NewProxy],
) -> Result<Vec<String>, ProxyFilesError> {
    on_all_cores(proxies, |proxy| {
        if !proxy.name.is_empty() {
            folder.create_subfolder(Path::new(&proxy.name))?;
        }
        let (key, certificate_request) = generate_proxy_key_and_csr()?;
        folder.write(&Path::new(&proxy.name).join(envoy::KEY), key.expose(), 0o600)?;
        Ok(certificate_request)
    })
}

/// Writes the certificate (in PEM, with its issuers), the record and the bootstrap of each enrolled proxy beside its key.
/// Returns the command that starts each.
pub fn write_bootstraps(
    folder: &NewFolder,
    enrolled: &[(&NewProxy, Workload, &str)],
    common: &CommonFiles<'_>,
) -> Result<Vec<String>, ProxyFilesError> {
    on_all_cores(enrolled, |(proxy, workload, certificate)| {
        let driver = DRIVERS.find(&workload.driver)?;
        let patch = driver.patch(workload, &DriverSettings::default(), None)?;
        let write = |name: &str, content: &str| {
            folder.write(&Path::new(&proxy.name).join(name), content, 0o644)
        };
        write(envoy::CERTIFICATE, certificate)?;
        write(envoy::ROOTS, common.roots)?;
        if !common.enrollment.addresses.is_empty() {
            write(ENROLLMENT, &common.enrollment.to_json())?;
        }
        write(WORKLOAD, &format!("{:#}\n", serde_json::json!(workload)))?;
        for file in &patch.files {
            write(file.name, &file.content)?;
        }
        Ok(start_command(&patch))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn bulk_enrollment_counts_addresses_and_numbers_folders() {
        let of = |first: &str, count| {
            let proxies = NewProxy::consecutive(first.parse().unwrap(), count).ok()?;
            let last = proxies.last()?;
            Some((last.name.clone(), last.address.to_string()))
        };
        let last = |name: &str, address: &str| Some((name.to_owned(), address.to_owned()));
        assert_eq!(of("10.0.0.7", None), last("", "10.0.0.7"));
        assert_eq!(of("10.0.0.7", Some(1)), last("0001", "10.0.0.7"));
        assert_eq!(of("10.0.0.250", Some(10)), last("0010", "10.0.1.3"));
        assert_eq!(of("10.0.0.0", Some(20_000)), last("20000", "10.0.78.31"));
        assert_eq!(of("fd00::fffe", Some(3)), last("0003", "fd00::1:0"));
        assert_eq!(of("255.255.255.254", Some(3)), None);
    }

    #[test]
    fn finished_folder_has_private_keys_and_unfinished_one_vanishes() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("new/proxies");
        let proxies = NewProxy::consecutive([10, 0, 0, 1].into(), Some(2)).unwrap();
        let folder = NewFolder::create(&path, 0o700).unwrap();
        assert_eq!(create_keys(&folder, &proxies).unwrap().len(), 2);
        drop(folder);
        assert!(!root.path().join("new").exists());

        let folder = NewFolder::create(&path, 0o700).unwrap();
        create_keys(&folder, &proxies).unwrap();
        assert!(!path.exists());
        folder.finish().unwrap();
        let mode = |path: PathBuf| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path.join("0002").join(envoy::KEY)), 0o600);
        assert_eq!(mode(path.join("0002")), 0o700);
        let error = NewFolder::create(&path, 0o700).unwrap_err().to_string();
        assert!(error.ends_with("exists already: choose a new folder, or remove this one first"));
    }
}
