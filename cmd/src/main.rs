//! `ironmesh`: the control plane and the operator's tool in one binary.
//!
//! This crate owns the commands and the wiring of the other crates. It reads the clock and the environment,
//! installs the log subscriber and chooses exit codes. It contains no mesh logic.

mod agent;
mod cert;
mod context;
mod demo;
mod endpoints;
mod envoy;
mod events;
mod exit;
mod explain;
mod finding;
mod journal;
mod log;
mod log_level;
mod operator;
mod policy;
mod provider;
mod proxy;
mod resolved_settings;
mod serve;
mod service;
mod session;
mod settings;
mod status;
mod store;
mod watch;

use std::process::ExitCode;

use ironmesh_api::CordonChange;
use ironmesh_command_line::{
    AgentCommand, AzureCommand, Cli, Command, EnvoyCommand, ManArguments, ProviderCommand,
    ProxyCommand,
};
use ironmesh_terminal::manual;
use ironmesh_terminal::stdout::out;
use tokio::runtime::Builder;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::read();
    exit::code(run(cli))
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let output = cli.output.into();
    let mut builder = match cli.command {
        // They wait for processes, or for the time of a renewal, nearly all the time.
        Command::Envoy(_) | Command::Agent(AgentCommand::Run(_)) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let result = match cli.command {
        Command::Serve(arguments) => runtime.block_on(serve::serve(&arguments, output)),
        Command::Status(arguments) => runtime.block_on(status::status(&arguments, output)),
        Command::Demo(arguments) => runtime.block_on(demo::demo(&arguments, output)),
        Command::DemoChild(arguments) => demo::child(arguments),
        Command::DemoCaretaker(arguments) => demo::caretaker(&arguments),
        Command::Policy(command) => runtime.block_on(policy::run(command, output)),
        Command::Cert(command) => runtime.block_on(cert::run(command, cli.output)),
        Command::Provider(ProviderCommand::Azure(AzureCommand::Test(arguments))) => {
            runtime.block_on(provider::test_azure(&arguments, output))
        }
        Command::Service(command) => runtime.block_on(service::run(command, output)),
        Command::Provider(ProviderCommand::List(arguments)) => {
            runtime.block_on(provider::list(&arguments, output))
        }
        Command::Settings(arguments) => runtime.block_on(settings::settings(&arguments, output)),
        Command::Endpoints(arguments) => runtime.block_on(endpoints::endpoints(arguments, output)),
        Command::Finding(command) => runtime.block_on(finding::run(command, output)),
        Command::Events(arguments) => runtime.block_on(events::events(arguments, output)),
        Command::Journal(arguments) => runtime.block_on(journal::journal(arguments, output)),
        Command::Log(command) => runtime.block_on(log_level::run(command, output)),
        Command::Operator(command) => runtime.block_on(operator::run(command, output)),
        Command::Ui(arguments) => runtime.block_on(session::ui(&arguments, output)),
        Command::Session(command) => runtime.block_on(session::run(command, output)),
        Command::Context(command) => context::run(command, output),
        Command::Store(command) => store::run(command, output, &runtime),
        Command::Explain(arguments) => Ok(explain::explain(&arguments, output)?),
        Command::Completions(arguments) => {
            Ok(out!("{}", manual::completions(arguments.shell, &Cli::declaration()))?)
        }
        Command::Man(ManArguments { out: Some(folder) }) => {
            Ok(manual::write_pages(Cli::declaration(), &folder)?)
        }
        Command::Man(_) => Ok(out!("{}", manual::page(Cli::declaration())?)?),
        Command::Proxy(ProxyCommand::Bootstrap(arguments)) => {
            runtime.block_on(proxy::bootstrap(*arguments, output))
        }
        Command::Proxy(ProxyCommand::List(arguments)) => {
            runtime.block_on(proxy::list(arguments, cli.output))
        }
        Command::Proxy(ProxyCommand::Show(arguments)) => {
            runtime.block_on(proxy::show(&arguments, output))
        }
        Command::Proxy(ProxyCommand::Revoke(arguments)) => {
            runtime.block_on(proxy::revoke(arguments, output))
        }
        Command::Proxy(ProxyCommand::Cordon(arguments)) => {
            runtime.block_on(proxy::cordon(arguments, CordonChange::Cordon, output))
        }
        Command::Proxy(ProxyCommand::Uncordon(arguments)) => {
            runtime.block_on(proxy::cordon(arguments, CordonChange::Uncordon, output))
        }
        Command::Proxy(ProxyCommand::Drain(arguments)) => {
            runtime.block_on(proxy::cordon(arguments, CordonChange::Drain, output))
        }
        Command::Proxy(ProxyCommand::Versions(arguments)) => {
            runtime.block_on(proxy::versions(&arguments, output))
        }
        Command::Proxy(ProxyCommand::Token(arguments)) => {
            runtime.block_on(proxy::token(*arguments, cli.output))
        }
        Command::Proxy(ProxyCommand::SetServices(arguments)) => {
            runtime.block_on(proxy::set_services(arguments, output))
        }
        Command::Agent(AgentCommand::Join(arguments)) => {
            runtime.block_on(agent::join(*arguments, output))
        }
        Command::Envoy(EnvoyCommand::Run(arguments)) => {
            runtime.block_on(envoy::run(arguments, output))
        }
        Command::Envoy(EnvoyCommand::Reload(arguments)) => {
            runtime.block_on(envoy::reload(&arguments, output))
        }
        Command::Agent(AgentCommand::Run(arguments)) => {
            runtime.block_on(agent::run(&arguments, output))
        }
        Command::Agent(AgentCommand::Leave(arguments)) => {
            runtime.block_on(agent::leave(&arguments, output))
        }
        Command::Agent(AgentCommand::Status(arguments)) => {
            runtime.block_on(agent::status(&arguments, output))
        }
    };
    // A blocked call, for example on a network file system, must not delay the exit.
    runtime.shutdown_background();
    result
}
