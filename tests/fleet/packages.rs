//! The .deb in a guest: installation, hardening, upgrade, removal and purge.

use crate::fleet::{Fleet, PACKAGE};
use crate::guest::Guest;

/// The units that an operator starts.
const UNITS: [&str; 3] = ["ironmesh", "ironmesh-agent", "ironmesh-envoy"];

/// The smallest policy.
const POLICY: &str = "[[service]]\nname = \"bookstore\"\nnamespace = \"shop\"\n";

/// The highest exposure that `systemd-analyze security` may report, in tenths.
const EXPOSURE: &str = "15";

/// Makes a package of the next revision out of this one, with the same files.
const NEXT_REVISION: &str = r#"
dpkg-deb --raw-extract "$1" /root/next
sed --in-place 's/^\(Version: .*\)-1$/\1-2/' /root/next/DEBIAN/control
dpkg-deb -Znone --build /root/next /root/next.deb
"#;

/// What a unit runs now; 0 if it does not run.
async fn main_pid(guest: &Guest, unit: &str) -> String {
    guest.run(&format!("systemctl show --property MainPID --value {unit}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn package_installs_upgrades_and_keeps_the_state_at_a_purge() {
    let Some(fleet) = Fleet::boot_with_package(1).await else { return };
    let guest = fleet.guest(1);
    guest.run(&format!("dpkg --install {PACKAGE}")).await;
    for unit in UNITS {
        let enabled = guest.try_run(&format!("systemctl is-enabled {unit}")).await;
        assert_eq!(enabled.stdout, b"disabled\n", "{unit}: {enabled:?}");
        assert_eq!(main_pid(guest, unit).await, "0", "{unit}");
    }
    let owners = guest
        .run("stat --format '%U %a %n' /var/lib/ironmesh /var/lib/ironmesh-agent /var/log/ironmesh-agent /etc/ironmesh/policy")
        .await;
    let expected = "ironmesh 700 /var/lib/ironmesh\nironmesh-proxy 700 /var/lib/ironmesh-agent\n\
        ironmesh-proxy 750 /var/log/ironmesh-agent\nroot 755 /etc/ironmesh/policy";
    assert_eq!(owners, expected);
    let files = "cd /usr/share; ls man/man1/ironmesh-policy-check.1 zsh/vendor-completions/_ironmesh \
        bash-completion/completions/ironmesh fish/vendor_completions.d/ironmesh.fish doc/ironmesh/agent.toml";
    guest.run(files).await;
    let verified = guest
        .run(
            "systemd-analyze verify --man=no /usr/lib/systemd/system/ironmesh*.service 2>&1 | grep ironmesh || true",
        )
        .await;
    assert_eq!(verified, "");
    let security =
        format!("systemd-analyze security --no-pager --threshold={EXPOSURE} ironmesh.service");
    let security = guest.run(&security).await;
    eprintln!("{}", security.lines().last().unwrap());

    // Control plane and machine on one host.
    guest.write("/etc/ironmesh/policy/services.toml", POLICY).await;
    guest.run("chmod 644 /etc/ironmesh/policy/services.toml; cp /usr/share/doc/ironmesh/agent.toml /etc/ironmesh").await;
    guest.run("systemctl enable --now ironmesh ironmesh-agent ironmesh-envoy").await;
    let ready = "curl --silent --show-error --fail http://127.0.0.1:15014/readyz";
    guest.wait_until("the control plane to be ready", ready).await;
    // Root operates the control plane of the user `ironmesh`.
    guest.run("ironmesh status").await;
    guest.run("ironmesh proxy token --service shop/bookstore --address 10.77.0.11/32").await;
    guest.run("ls /var/lib/ironmesh/state.redb").await;
    // Envoy's user cannot read the keys of the control plane.
    let read = guest.try_run("runuser -u ironmesh-proxy -- ls /var/lib/ironmesh").await;
    assert!(!read.status.success(), "{read:?}");

    let mut before = Vec::new();
    for unit in UNITS {
        before.push(main_pid(guest, unit).await);
    }
    guest.run(&format!("set -- {PACKAGE}\n{NEXT_REVISION}")).await;
    guest.run("dpkg --install /root/next.deb").await;
    guest.wait_until("the control plane to be ready", ready).await;
    for (unit, before) in UNITS.into_iter().zip(before) {
        let after = main_pid(guest, unit).await;
        assert!(
            after != "0" && (after == before) == (unit == "ironmesh-envoy"),
            "{unit}: {before}, {after}"
        );
    }

    guest.run("dpkg --remove ironmesh").await;
    for unit in UNITS {
        assert_eq!(main_pid(guest, unit).await, "0", "{unit}");
    }
    guest.run("ls /etc/ironmesh/ironmesh.toml; [ ! -e /usr/bin/ironmesh ]").await;
    let purge = guest.run("dpkg --purge ironmesh 2>&1").await;
    assert!(purge.contains("/var/lib/ironmesh stays"), "{purge}");
    guest.run("ls /var/lib/ironmesh/state.redb /etc/ironmesh/kek /etc/ironmesh/policy").await;
    let left = "find / -xdev -name '*ironmesh*' -not -path '/proc/*' -not -path '/var/lib/ironmesh/*' \
        -not -path '/root/*' -not -path '/var/log/journal/*' -not -path '/tmp/*' | sort";
    assert_eq!(guest.run(left).await, "/etc/ironmesh\n/var/lib/ironmesh");
}
