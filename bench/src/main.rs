//! `ironmesh-bench`: measures a control plane with many simulated Envoys.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ironmesh_bench::run::{Options, Part, run};
use ironmesh_bench::{
    AckDelay, Catalog, Faults, Fleet, Identity, Shape, Variant, allow_connections, floor, folders,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measures a control plane with many simulated Envoys.
#[derive(Debug, Parser)]
#[command(name = "ironmesh-bench", version, arg_required_else_help = true)]
struct Cli {
    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For machines
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a control plane and the floor, and measure both
    Run(RunArguments),
    /// Connect simulated Envoys to a control plane that runs already
    Join(JoinArguments),
    /// What everything is compared with; started by `run`
    #[command(hide = true)]
    Floor(floor::Options),
}

#[derive(Debug, Args)]
struct RunArguments {
    /// The fleets, as PROXIESxSERVICES
    #[arg(long = "shape", default_values = ["1000x100", "500x1000"])]
    shapes: Vec<Shape>,
    /// The control plane
    #[arg(long, env = "IRONMESH_BIN", default_value = "target/release/ironmesh")]
    ironmesh: PathBuf,
    /// A real Envoy; without one, what needs it is left out
    #[arg(long, env = "ENVOY_BIN", default_value = ".tools/envoy")]
    envoy: PathBuf,
    /// A real Consul; without one, what needs it is left out
    #[arg(long, env = "CONSUL_BIN", default_value = ".tools/consul")]
    consul: PathBuf,
    /// What is measured; all of it, unless named
    #[arg(long = "part", value_enum, default_values = ["fleets", "policy", "grants", "consul"])]
    parts: Vec<Part>,
    /// What Consul knows, as SERVICESxINSTANCES
    #[arg(long, default_value = "1000x100")]
    catalog: Catalog,
    /// For how many seconds it is counted what Consul is asked while nothing happens
    #[arg(long, default_value_t = 60)]
    steady: u64,
    #[command(flatten)]
    clients: ClientArguments,
    /// How many changes make a series
    #[arg(long, default_value_t = 24)]
    events: usize,
    /// How often the fleet is tried with and without clients that misbehave
    #[arg(long, default_value_t = 10)]
    fault_runs: usize,
    /// How often the control plane is killed, and all connect again
    #[arg(long, default_value_t = 3)]
    storms: usize,
    /// How many seconds anything may take
    #[arg(long, default_value_t = 120)]
    patience: u64,
}

#[derive(Debug, Args)]
struct ClientArguments {
    /// The variant of the protocol
    #[arg(long, value_enum, default_value_t = VariantArgument::Delta)]
    variant: VariantArgument,
    /// How many microseconds an Envoy works before it answers
    #[arg(long, default_value_t = 1200)]
    ack_delay: u64,
    /// How many more for each endpoint
    #[arg(long, default_value_t = 10)]
    ack_delay_per_endpoint: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VariantArgument {
    Delta,
    Sotw,
}

#[derive(Debug, Args)]
struct JoinArguments {
    /// The folder that `ironmesh proxy bootstrap --count N --out DIR` wrote
    folder: PathBuf,
    #[command(flatten)]
    clients: ClientArguments,
    /// How many seconds they stay
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many of them refuse whatever comes, once they are configured
    #[arg(long, default_value_t = 0)]
    refusing: usize,
    /// How many take what comes and never say so
    #[arg(long, default_value_t = 0)]
    silent: usize,
    /// How many read nothing for three seconds after each thing that they read
    #[arg(long, default_value_t = 0)]
    slow: usize,
    /// At the end, let a fresh client of each identity connect and compare what both have
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
    // What was started ends with what is dropped here.
    let result = tokio::select! {
        result = work => result,
        result = told_to_end() => result.and_then(|()| bail!("interrupted")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn told_to_end() -> anyhow::Result<()> {
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
    let options = Options {
        ironmesh: arguments.ironmesh,
        envoy: arguments.envoy,
        own_program: std::env::current_exe()?,
        consul: arguments.consul,
        parts: arguments.parts,
        shapes: arguments.shapes,
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
    match output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
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
    let first = identities.first().context("there is no folder with an envoy.yaml in there")?;
    let target = first.control_plane;
    allow_connections(identities.len() as u64 + 100)?;
    let faults =
        Faults { refusing: arguments.refusing, silent: arguments.silent, slow: arguments.slow };
    if faults.total() > identities.len() {
        bail!("more are to misbehave than there are");
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
