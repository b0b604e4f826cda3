//! Completions of shells and man pages, generated from a command line.

use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// The completions of a command for a shell, as a script. They offer no hidden commands.
pub fn completions(shell: Shell, command: &Command) -> String {
    let name = command.get_name();
    // clap_complete would offer hidden commands.
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut shown = Command::new("shown")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments())
        .subcommands(shown);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The first man page of a command.
pub fn page(command: Command) -> io::Result<String> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Writes a man page for the command and for each of its subcommands, except hidden ones, into a folder.
pub fn write_pages(command: Command, folder: &Path) -> io::Result<()> {
    fs_err::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)
}
