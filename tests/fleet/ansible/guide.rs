//! docs/guides/fleet-with-ansible.md, word by word: each block runs on its host as it is printed.

use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::symlink;
use ironmesh_tests::guide::{guide_blocks, variables_and_steps};

use super::controller::{Controller, repository};
use super::{BUYER, Programs, RELEASES};
use crate::fleet::Fleet;

/// The most commands from a checkout to the first request.
const MOST_COMMANDS: usize = 10;

/// The variables of the guide, in its order; `PATH` is defined by the guide alone.
const HOSTS: [&str; 5] = ["CONTROL_PLANE", "STORE_1", "STORE_2", "WAREHOUSE", "BUYER"];

/// Stands in for `make` on the controller. `make package` takes minutes, so the package of the test binary is there
/// already, made by the same recipe; `make test-long-package` runs the real one.
const MAKE: &str = r"#!/bin/sh
case $* in
package) ls target/package/ironmesh_*.deb ;;
envoy) ls .tools/envoy ;;
*) exit 2 ;;
esac
";

/// The clock of a guest is that of this machine, whose time service it does not see.
const SYNCHRONIZED: &str = r"
printf '#!/bin/sh\necho yes\n' >/usr/local/bin/timedatectl
chmod 755 /usr/local/bin/timedatectl
";

/// A checkout as the reader has it, with the package and Envoy of this test.
fn checkout(folder: &Path, programs: &Programs) {
    for name in ["deploy-ansible", "scripts"] {
        symlink(repository().join(name), folder.join(name)).unwrap();
    }
    fs::create_dir_all(folder.join(".tools")).unwrap();
    fs::create_dir_all(folder.join("target/package")).unwrap();
    fs::create_dir_all(folder.join("bin")).unwrap();
    symlink(&programs.envoy, folder.join(".tools/envoy")).unwrap();
    // Fetched already, under the name that `scripts/get-ansible.sh` looks for.
    let ansible = programs.ansible.file_name().unwrap();
    symlink(&programs.ansible, folder.join(".tools").join(ansible)).unwrap();
    let package = programs.package.file_name().unwrap();
    symlink(&programs.package, folder.join("target/package").join(package)).unwrap();
    fs::write(folder.join("bin/make"), MAKE).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.join("bin/make"), executable).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn guide_leads_from_a_checkout_to_the_first_request() {
    let Some(programs) = Programs::find() else { return };
    let Some(fleet) = Fleet::boot_bare(&RELEASES, Vec::new()).await else { return };
    let controller = Controller::new(&fleet, &programs.ansible, "static").await;
    for guest in fleet.guests() {
        guest.run(SYNCHRONIZED).await;
    }
    let folder = tempfile::tempdir().unwrap();
    checkout(folder.path(), &programs);
    let (variables, steps) = variables_and_steps(guide_blocks("fleet-with-ansible"));
    assert_eq!(variables[..HOSTS.len()], HOSTS);
    assert!(steps.len() <= MOST_COMMANDS, "{} commands", steps.len());
    let addresses = HOSTS.iter().zip(fleet.guests());
    let addresses = addresses.map(|(name, guest)| format!("{name}={}\n", guest.address()));
    let path = "PATH=$PWD/.tools/ansible/bin:$PWD/bin:$PATH\n";
    let variables = addresses.collect::<String>() + path;
    let mut book = String::new();
    for step in steps {
        match step.place.as_str() {
            "controller" => {
                controller.run(folder.path(), &format!("{variables}{}", step.text)).await;
            }
            "caller" => book = fleet.guest(BUYER).run(&step.text).await,
            other => panic!("no host `{other}`"),
        }
    }
    assert!(book.contains("The Name of the Rose"), "{book}");
}
