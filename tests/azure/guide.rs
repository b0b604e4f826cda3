//! The Azure part of docs/guides/enroll-a-machine.md, word by word: its settings, its policy and
//! its blocks, as they are printed.

use std::path::Path;

use fs_err as fs;
use ironmesh_tests::attestation::MachineMetadata;
use ironmesh_tests::azure::{Machine, SUBSCRIPTION, ScaleSet};
use ironmesh_tests::guide::{GuideBlock, guide_blocks};
use tokio::process::Command;

use crate::join::Shop;

const GUIDE: &str = "enroll-a-machine";

/// The first block in this language of the section about Azure that begins so.
fn example(start: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let guide = fs::read_to_string(root.join(format!("docs/guides/{GUIDE}.md"))).unwrap();
    let section = guide.split_once("\n## Azure, without a token\n").unwrap().1;
    let found = section.split("```toml\n").find(|block| block.starts_with(start)).unwrap();
    found.split_once("```").unwrap().0.to_owned()
}

fn block(place: &str) -> GuideBlock {
    let mut found = guide_blocks(GUIDE).into_iter().filter(|block| block.place == place);
    let only = found.next().unwrap();
    assert!(found.next().is_none(), "two blocks for {place}");
    only
}

#[tokio::test(flavor = "multi_thread")]
async fn guide_enrolls_an_azure_machine_without_a_token() {
    let settings = example("[azure.attestation]");
    let policy = example("[[service]]\nname = \"stock\"");
    let shop = Shop::open_with(&policy, |folder| {
        let folder = folder.join("intermediates");
        // The guide's folder is one of the system; its test has its own, and a root of its own.
        settings.replace("/etc/ironmesh/azure-intermediates", folder.to_str().unwrap())
    });
    let Some(shop) = shop.await else { return };
    let address = shop.mesh.loopback().host(41).to_string();
    let vm_id = shop.azure.change(|vms| {
        vms.scale_sets.insert("stock".to_owned(), ScaleSet::default());
        let machine = Machine::of("stock", "0", &address);
        let vm_id = machine.vm_id;
        vms.machines.push(machine);
        vm_id
    });
    let metadata = MachineMetadata::start(&shop.ca, vm_id, SUBSCRIPTION).await;
    // The metadata service of this machine has another address than Azure's.
    let folder = shop.mesh.folder();
    fs::create_dir(folder.join("bin")).unwrap();
    let (program, url) = (shop.programs.ironmesh.display(), metadata.url());
    let script = format!(
        "#!/bin/sh\ncase \"$1 $2\" in\n\"agent join\") exec {program} \"$@\" --azure-metadata {url};;\n*) exec {program} \"$@\";;\nesac\n"
    );
    let path = folder.join("bin/ironmesh");
    fs::write(&path, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&path, mode).unwrap();

    let run = async |block: GuideBlock, ca_hash: &str| {
        let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
        let output = Command::new("bash")
            .args(["-ec", &block.text])
            .current_dir(folder)
            .env("PATH", path)
            .env("IRONMESH_CONFIG", folder.join("ironmesh.toml"))
            .env("CONTROL_PLANE", shop.mesh.loopback().host(1).to_string())
            .env("SERVICE", "default/stock")
            .env("DIR", folder.join("machine"))
            .env("CA_HASH", ca_hash)
            .output()
            .await
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}{printed}", block.text);
        printed
    };
    let printed = run(block("azure-control-plane"), "").await;
    let hash = printed.split_once("--ca-hash ").unwrap().1.split_whitespace().next().unwrap();
    run(block("azure-machine"), hash).await;
    let proxies = shop.mesh.proxies().await;
    assert_eq!(proxies[0]["services"][0], "default/stock", "{proxies:#}");
    assert_eq!(proxies[0]["mesh_address"], format!("{address}:15003"), "{proxies:#}");
    assert!(folder.join("machine/envoy.yaml").exists());
}
