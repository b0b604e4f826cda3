//! `ironmesh-bench`: measures a control plane with many simulated Envoys.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ironmesh_bench::run::{ChangeRate, Part, RunOptions, run};
use ironmesh_bench::{
    AckDelay, CONTRACT, Catalog, Faults, Fleet, Identity, Shape, Variant, allow_connections, floor,
    folders, plots,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measure a control plane with many simulated Envoys
#[derive(Debug, Parser)]
#[command(name = "ironmesh-bench", version, arg_required_else_help = true)]
struct Cli {
    /// Print results as text or JSON
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables for people
    Text,
    /// JSON for scripts
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a control plane and the floor, and measure both
    #[command(after_long_help = CONTRACT)]
    Run(RunArguments),
    /// Connect simulated Envoys to a running control plane
    Join(JoinArguments),
    /// Run the reference server, by the contract of `run --target`
    Floor(floor::FloorOptions),
}

#[derive(Debug, Args)]
struct RunArguments {
    /// Measure fleets of these sizes, as PROXIESxSERVICES
    #[arg(long = "shape", default_values = ["1000x100", "500x1000"])]
    shapes: Vec<Shape>,
    /// Measure this ironmesh binary
    #[arg(long, env = "IRONMESH_BIN", default_value = "target/release/ironmesh")]
    ironmesh: PathBuf,
    /// Measure the control plane that this command runs, instead of ironmesh, which then only prepares it; `--help`
    /// ends with the contract
    #[arg(long, value_name = "CMD")]
    target: Option<String>,
    /// Use this Envoy; parts that need it are skipped if it does not exist
    #[arg(long, env = "ENVOY_BIN", default_value = ".tools/envoy")]
    envoy: PathBuf,
    /// Use this Consul; parts that need it are skipped if it does not exist
    #[arg(long, env = "CONSUL_BIN", default_value = ".tools/consul")]
    consul: PathBuf,
    /// Use this etcd, with etcdctl beside it; the part `replicas` is skipped if it does not exist
    #[arg(long, env = "ETCD_BIN", default_value = ".tools/etcd")]
    etcd: PathBuf,
    /// Measure only this part; may be repeated
    #[arg(
        long = "part",
        value_enum,
        default_values = ["fleets", "policy", "operations", "grants", "consul"]
    )]
    parts: Vec<Part>,
    /// Make this many changes a second in the part `churn`
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    churn_rate: u32,
    /// Let the part `churn` last this many seconds
    #[arg(long, default_value_t = 60)]
    churn_seconds: u64,
    /// Renew all certificates within this many seconds in the part `renewals`; 3600 is a real fleet's hour
    #[arg(long, default_value_t = 360)]
    renewal_seconds: u64,
    /// Let the part `scale` have at most this many proxies, and half as many services
    #[arg(long, default_value_t = 2000)]
    scale: usize,
    /// Fill Consul with this catalog, as SERVICESxINSTANCES
    #[arg(long, default_value = "1000x100")]
    catalog: Catalog,
    /// Let fleets and Consul be idle for this many seconds
    #[arg(long, default_value_t = 60)]
    steady: u64,
    #[command(flatten)]
    clients: ClientArguments,
    /// Make this many changes in each series
    #[arg(long, default_value_t = 24)]
    events: usize,
    /// Compare the fleet with and without misbehaving clients this many times
    #[arg(long, default_value_t = 10)]
    fault_runs: usize,
    /// Kill the control plane and reconnect all clients this many times
    #[arg(long, default_value_t = 3)]
    storms: usize,
    /// Write the report to FILE as JSON, besides printing it
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write plots of the report to DIR, as SVG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Fail if any step takes longer than this many seconds
    #[arg(long, default_value_t = 120)]
    patience: u64,
}

#[derive(Debug, Args)]
struct ClientArguments {
    /// Use this variant of xDS
    #[arg(long, value_enum, default_value_t = VariantArgument::Delta)]
    variant: VariantArgument,
    /// Let a simulated Envoy work this many microseconds before each ACK
    #[arg(long, default_value_t = 1200)]
    ack_delay: u64,
    /// Add this many microseconds for each endpoint
    #[arg(long, default_value_t = 10)]
    ack_delay_per_endpoint: u64,
}

/// The value of `--variant`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VariantArgument {
    /// Delta xDS
    Delta,
    /// State-of-the-world xDS
    Sotw,
}

#[derive(Debug, Args)]
struct JoinArguments {
    /// Read identities from the DIR of `ironmesh proxy bootstrap --count N --out DIR`
    folder: PathBuf,
    #[command(flatten)]
    clients: ClientArguments,
    /// Stay connected for this many seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Let this many clients NACK every response once they are configured
    #[arg(long, default_value_t = 0)]
    nacking: usize,
    /// Let this many clients never answer
    #[arg(long, default_value_t = 0)]
    silent: usize,
    /// Let this many clients pause for three seconds after each read
    #[arg(long, default_value_t = 0)]
    slow: usize,
    /// At the end, compare the resources of each client with those of a fresh client
    #[arg(long)]
    verify: bool,
}

impl ClientArguments {
    fn variant(&self) -> Variant {
        match self.variant {
            VariantArgument::Delta => Variant::Delta,
            VariantArgument::Sotw => Variant::Sotw,
        }
    }

    fn delay(&self) -> AckDelay {
        AckDelay {
            response: Duration::from_micros(self.ack_delay),
            endpoint: Duration::from_micros(self.ack_delay_per_endpoint),
        }
    }
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "errors of a program go to stderr")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let work = async {
        match cli.command {
            Command::Run(arguments) => measure(arguments, cli.output).await,
            Command::Join(arguments) => join(arguments, cli.output).await,
            Command::Floor(options) => floor::serve(options).await,
        }
    };
    // Child processes end when `work` is dropped.
    let result = tokio::select! {
        result = work => result,
        result = await_signal() => result.and_then(|()| bail!("interrupted")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGTERM or SIGINT.
async fn await_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the report is this command's result")]
async fn measure(arguments: RunArguments, output: Output) -> anyhow::Result<()> {
    let options = RunOptions {
        ironmesh: arguments.ironmesh,
        envoy: arguments.envoy,
        own_program: std::env::current_exe()?,
        consul: arguments.consul,
        etcd: arguments.etcd,
        target: arguments.target,
        parts: arguments.parts,
        shapes: arguments.shapes,
        churn: ChangeRate {
            per_second: arguments.churn_rate,
            time: Duration::from_secs(arguments.churn_seconds),
        },
        renewals: Duration::from_secs(arguments.renewal_seconds),
        scale: arguments.scale,
        catalog: arguments.catalog,
        steady: Duration::from_secs(arguments.steady),
        variant: arguments.clients.variant(),
        delay: arguments.clients.delay(),
        events: arguments.events,
        fault_runs: arguments.fault_runs,
        storms: arguments.storms,
        patience: Duration::from_secs(arguments.patience),
    };
    let report = run(&options).await?;
    let json = serde_json::to_string_pretty(&report)?;
    match output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{json}"),
    }
    if let Some(file) = arguments.json {
        fs_err::write(file, json)?;
    }
    if let Some(folder) = arguments.plots {
        plots::write(&folder, &report)?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the counts are this command's result")]
async fn join(arguments: JoinArguments, output: Output) -> anyhow::Result<()> {
    let mut identities = Vec::new();
    for (number, folder) in folders(&arguments.folder)?.iter().enumerate() {
        let mut identity = Identity::read(folder, None)?;
        identity.zone = format!("zone-{number}");
        identities.push(identity);
    }
    let first =
        identities.first().context("the folder contains no proxy folder with an envoy.yaml")?;
    let target = first.control_plane;
    allow_connections(identities.len() as u64 + 100)?;
    let faults =
        Faults { nacking: arguments.nacking, silent: arguments.silent, slow: arguments.slow };
    if faults.total() > identities.len() {
        bail!("the number of misbehaving clients exceeds the number of clients");
    }
    let fleet = Fleet::new(identities, arguments.clients.variant(), arguments.clients.delay());
    fleet.set_faults(faults);
    fleet.connect(target, true);
    fleet.all_configured(Duration::from_secs(300)).await?;
    sleep(Duration::from_secs(arguments.seconds)).await;
    if arguments.verify {
        fleet.verify(target, Duration::from_secs(300)).await?;
    }
    let counts = fleet.counts();
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&counts)?),
        Output::Text => println!("{} proxies: {counts:?}", fleet.len()),
    }
    Ok(())
}
