//! One guest: boot, power loss, its network, its files, and commands on it.
//!
//! Commands enter the namespaces of the guest, so they need no network and no SSH: they work while it is cut off.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::eventually::{eventually_within, patience};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::fleet::Site;
use crate::leftovers::PREFIX;

/// A guest of a fleet.
#[derive(Debug)]
pub(crate) struct Guest {
    number: u8,
    /// The root folder that the guest starts from, and never changes.
    debian: PathBuf,
    site: Arc<Site>,
    is_cut: AtomicBool,
    /// Its systemd-nspawn; `None` while the guest is off.
    nspawn: Mutex<Option<Child>>,
    /// The process id of its systemd on this machine; 0 while the guest is off or starts.
    init: AtomicU32,
}

/// Mounts the file system and a cgroup tree of the guest's own, and becomes systemd-nspawn. The mounts end with it.
const POWER_ON: &str = r#"
debian=$1 folder=$2 cgroup=$3
shift 3
mount -t overlay overlay -o "lowerdir=$debian,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p "/sys/fs/cgroup/$cgroup"
echo $$ >"/sys/fs/cgroup/$cgroup/cgroup.procs"
exec systemd-nspawn "$@"
"#;

/// Runs a command in the cgroup of the guest, so that it ends with it, and in its namespaces.
const ENTER: &str = r#"
echo $$ >"$1/cgroup.procs"
init=$2 capabilities=$3
shift 3
exec nsenter --target "$init" --mount --uts --ipc --net --pid --cgroup --root --wd \
    setpriv --bounding-set "$capabilities" -- "$@"
"#;

/// What systemd-nspawn leaves to root in a guest: nothing that changes this machine, such as its clock.
const CAPABILITIES: &str = "-all,+audit_control,+audit_write,+chown,+dac_override,+dac_read_search,+fowner,\
    +fsetid,+ipc_owner,+kill,+lease,+linux_immutable,+mknod,+net_admin,+net_bind_service,+net_broadcast,+net_raw,\
    +setfcap,+setgid,+setpcap,+setuid,+sys_admin,+sys_boot,+sys_chroot,+sys_nice,+sys_ptrace,+sys_resource,\
    +sys_tty_config";

/// The interval between two probes of a guest. Each starts several processes.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_millis(100);

impl Guest {
    /// Creates the files of a guest that is off, in a fleet of `count`.
    pub(crate) fn new(number: u8, debian: PathBuf, site: Arc<Site>, count: u8) -> Self {
        let guest = Self {
            number,
            debian,
            site,
            is_cut: AtomicBool::new(false),
            nspawn: Mutex::new(None),
            init: AtomicU32::new(0),
        };
        for name in ["root", "work", "upper/etc"] {
            fs::create_dir_all(guest.folder().join(name)).unwrap();
        }
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for number in 1..=count {
            writeln!(hosts, "{} vm{number}", address(number)).unwrap();
        }
        fs::write(guest.folder().join("upper/etc/hosts"), hosts).unwrap();
        guest
    }

    /// The host name, `vm1` for the first guest.
    pub(crate) fn name(&self) -> String {
        format!("vm{}", self.number)
    }

    /// The address on the network of the fleet.
    pub(crate) fn address(&self) -> Ipv4Addr {
        address(self.number)
    }

    /// Boots the guest, which must be off, and waits until all its units have started.
    pub(crate) async fn boot(&self) {
        self.power_on().await;
        self.wait_until_booted().await;
    }

    /// Starts to boot the guest, which must be off.
    pub(crate) async fn power_on(&self) {
        let mut nspawn = self.nspawn.lock().await;
        assert!(nspawn.is_none(), "{} runs already", self.name());
        let (name, site) = (self.name(), &self.site);
        site.network.plug_in(&name, self.address(), self.is_cut.load(Ordering::Relaxed)).await;
        let folder = self.folder();
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("console.log"));
        let (log, _) = log.unwrap().into_parts();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", POWER_ON, "sh"]);
        command.arg(&self.debian).arg(&folder).arg(format!("{}/{name}", site.cgroup()));
        command.args(["--quiet", "--boot", "--settings=no", "--register=no", "--keep-unit"]);
        command.args(["--link-journal=no", "--resolv-conf=off", "--timezone=off"]);
        command.arg("--capability=CAP_NET_ADMIN,CAP_NET_RAW");
        command.arg(format!("--directory={}", folder.join("root").display()));
        command.arg(format!("--machine={PREFIX}{}-{name}", site.id));
        command.arg(format!("--hostname={name}"));
        command.arg(format!("--uuid={}", self.machine_id()));
        command.arg(format!("--network-namespace-path={}", site.network.namespace(&name)));
        for (program, path) in &site.programs {
            command.arg(format!("--bind-ro={}:{path}", program.display()));
        }
        // Settings of the network are the guest's own.
        command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "network");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        *nspawn = Some(command.kill_on_drop(true).spawn().unwrap());
    }

    /// Waits until all units have started.
    pub(crate) async fn wait_until_booted(&self) {
        let name = self.name();
        let console = self.folder().join("console.log");
        let mut running = self.nspawn.lock().await;
        let nspawn = running.as_mut().unwrap();
        let children = nspawn.id().unwrap();
        let children = format!("/proc/{children}/task/{children}/children");
        let init = eventually(&format!("{name} to start"), async || {
            let ended = nspawn.try_wait().unwrap();
            assert!(ended.is_none(), "{name}: {}", fs::read_to_string(&console).unwrap());
            let children = fs::read_to_string(&children).unwrap_or_default();
            let child = children.split_whitespace().next().and_then(|child| child.parse().ok());
            // Before that, the child prepares the namespaces.
            let child = child.filter(|child| {
                fs::read(format!("/proc/{child}/comm")).is_ok_and(|comm| comm == b"systemd\n")
            });
            child.ok_or("no systemd")
        })
        .await;
        drop(running);
        self.init.store(init, Ordering::Relaxed);
        // The command waits until the boot has ended.
        let script = "systemctl is-system-running --wait || { systemctl --failed; exit 1; }";
        self.wait_until("its units to start", script).await;
    }

    /// Cuts the power: all processes end at once, and no peer sees their connections end. What they have written stays
    /// even without a sync, because the kernel is this machine's.
    pub(crate) async fn lose_power(&self) {
        self.site.network.set_cut(&self.name(), true).await;
        let init = self.init.load(Ordering::Relaxed).try_into().unwrap();
        kill_process(Pid::from_raw(init).unwrap(), Signal::KILL).unwrap();
        self.wait_until_off().await;
    }

    /// Shuts the guest down in good order, and boots it.
    pub(crate) async fn reboot(&self) {
        // The command may end before it answers.
        self.try_run("systemctl poweroff").await;
        self.wait_until_off().await;
        self.boot().await;
    }

    /// Cuts the guest off the network: its link is down, so packets vanish. It stays so over a reboot.
    pub(crate) async fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.site.network.set_cut(&self.name(), true).await;
    }

    /// Connects the guest again after [`Self::cut`].
    pub(crate) async fn heal(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
        self.site.network.set_cut(&self.name(), false).await;
    }

    /// Runs a snippet of bash as root, and returns its output without the last line end.
    ///
    /// # Panics
    ///
    /// If the snippet fails, with its output.
    pub(crate) async fn run(&self, snippet: &str) -> String {
        self.succeed(snippet, &self.try_run(snippet).await)
    }

    /// Runs a snippet of bash as this user; otherwise as [`Self::run`].
    pub(crate) async fn run_as(&self, user: &str, snippet: &str) -> String {
        let arguments = ["runuser", "-u", user, "--", "bash", "-euc", snippet];
        self.succeed(snippet, &self.enter(&arguments, b"").await)
    }

    /// Runs a snippet of bash as root with this input; otherwise as [`Self::run`].
    pub(crate) async fn run_with_input(&self, snippet: &str, input: &str) -> String {
        let output = self.enter(&["bash", "-euc", snippet], input.as_bytes()).await;
        self.succeed(snippet, &output)
    }

    /// Runs a snippet of bash as root.
    pub(crate) async fn try_run(&self, snippet: &str) -> Output {
        self.enter(&["bash", "-euc", snippet], b"").await
    }

    /// Waits until a snippet of bash succeeds, and returns its output.
    pub(crate) async fn wait_until(&self, what: &str, snippet: &str) -> String {
        self.wait_within(patience(), what, snippet).await
    }

    /// The same with a different deadline.
    pub(crate) async fn wait_within(
        &self,
        patience: Duration,
        what: &str,
        snippet: &str,
    ) -> String {
        eventually_within(patience, &format!("{what} on {}", self.name()), async || {
            let output = self.try_run(snippet).await;
            if output.status.success() {
                return Ok(text(&output.stdout));
            }
            sleep(PROBE_INTERVAL).await;
            Err(format!("{}{}", text(&output.stdout), text(&output.stderr)))
        })
        .await
    }

    /// Writes a file that only root may read, and the folders above it.
    pub(crate) async fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let script = r#"mkdir -p "$(dirname "$1")"; umask 077; cat >"$1""#;
        let output = self.enter(&["bash", "-euc", script, "bash", path], content.as_ref()).await;
        self.succeed(path, &output);
    }

    /// Installs and starts a systemd unit, which also starts at each boot.
    pub(crate) async fn install_unit(&self, name: &str, text: &str) {
        self.write(&format!("/etc/systemd/system/{name}.service"), text).await;
        let install = format!(
            "chmod 644 /etc/systemd/system/{name}.service; systemctl daemon-reload; \
             systemctl enable --quiet --now {name}"
        );
        self.run(&install).await;
    }

    /// Prints the end of the journal.
    pub(crate) fn print_journal(&self) {
        // systemd and Envoy start with hundreds of lines.
        let script = "journalctl --no-pager --output=short-precise \
            | grep --extended-regexp --invert-match '\\]\\[info\\]\\[|systemd\\[1\\]: .*(skipped|Starting|Finished|target|mount|systemd-)' \
            | cut --bytes=-300 | tail --lines=60";
        let name = self.name();
        let Some(command) = self.command(&["bash", "-c", script]) else {
            return eprintln!("--- {name} is off");
        };
        let mut command = command.into_std();
        let journal = command.output().map(|output| text(&output.stdout)).unwrap_or_default();
        eprintln!("--- the end of the journal of {name}\n{journal}");
    }

    async fn wait_until_off(&self) {
        let mut nspawn = self.nspawn.lock().await.take().unwrap();
        let end = timeout(patience(), nspawn.wait()).await;
        end.unwrap_or_else(|_| panic!("{} does not shut down", self.name())).unwrap();
        self.init.store(0, Ordering::Relaxed);
    }

    fn succeed(&self, what: &str, output: &Output) -> String {
        let (status, stdout) = (output.status, text(&output.stdout));
        let stderr = text(&output.stderr);
        assert!(status.success(), "{}: {what}\n{status}\n{stdout}\n{stderr}", self.name());
        stdout
    }

    async fn enter(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command =
            self.command(arguments).unwrap_or_else(|| panic!("{} is off", self.name()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that reads nothing may end first.
        let _ = stdin.write_all(input).await;
        drop(stdin);
        timeout(patience(), child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("{}: {arguments:?} does not end", self.name()))
            .unwrap()
    }

    /// A command on the guest; `None` while it is off.
    fn command(&self, arguments: &[&str]) -> Option<Command> {
        let init = Some(self.init.load(Ordering::Relaxed)).filter(|init| *init > 0)?;
        let cgroup = fs::read_to_string(format!("/proc/{init}/cgroup")).ok()?;
        let cgroup = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mut command = Command::new("sh");
        command.args(["-euc", ENTER, "sh"]).arg(self.site.cgroups.join(cgroup));
        command.args([&init.to_string(), CAPABILITIES]).args(arguments).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/root").env("LANG", "C.UTF-8");
        Some(command)
    }

    fn folder(&self) -> PathBuf {
        self.site.folder.join(self.name())
    }

    /// An id that stays the same over reboots, and differs between all guests of this machine.
    fn machine_id(&self) -> uuid::Uuid {
        let (process, fleet) = self.site.id.split_once('-').unwrap();
        let high = u64::from(process.parse::<u32>().unwrap());
        let low = u64::from(fleet.parse::<u32>().unwrap()) << 8 | u64::from(self.number);
        uuid::Uuid::from_u64_pair(high, low)
    }
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + number)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}
